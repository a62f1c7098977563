// Opens a trace in Perfetto's own trace processor, and prints what it answers to some questions as JSON.
//
//     node perfetto.mjs FOLDER TRACE '{"name": "select ...", ...}'
//
// FOLDER has trace_processor.wasm, engine_bundle.node.js and engine.mjs. The bundle is written for a worker of a
// browser, which asks for the first of these over HTTP: so the few names of a browser that it needs are made here.

import { readFileSync } from "node:fs";
import { basename, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { runInThisContext } from "node:vm";

const [folder, trace, questions] = process.argv.slice(2);
const read = name => readFileSync(join(folder, basename(name)));

globalThis.self = globalThis;
globalThis.WorkerGlobalScope = function () {};
globalThis.location = { href: "file:///worker.js" };
globalThis.XMLHttpRequest = class {
  open(method, name) { this.name = name; }
  send() {
    const bytes = read(this.name);
    this.response = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length);
  }
};
console.log = () => {};

runInThisContext(read("engine_bundle.node.js").toString());
const { EngineBase } = await import(pathToFileURL(resolve(folder, "engine.mjs")));
const { port1, port2 } = new MessageChannel();

class Engine extends EngineBase {
  rpcSendRequestBytes(bytes) { port1.postMessage(bytes); }
}

const engine = new Engine();
port1.onmessage = ({ data }) => engine.onRpcResponseBytes(data);
await new Promise(ready => setTimeout(ready, 100));
self.onmessage({ data: port2 });
await engine.parse(readFileSync(trace));
await engine.notifyEof();

const answers = {};
for (const [name, question] of Object.entries(JSON.parse(questions))) {
  const result = await engine.query(question), columns = result.columns();
  answers[name] = [];
  for (const row = result.iter({}); row.valid(); row.next())
    answers[name].push(columns.map(column => row.get(column)));
}
process.stdout.write(JSON.stringify(answers, (_, value) => typeof value === "bigint" ? Number(value) : value));
process.exit(0);
