// The engine in a worker: Pyodide, the modules of minipipe, and lab.py. Messages are {id, ask, ...arguments}, answers {id, text}.

const here = new URL(".", import.meta.url);
const megabytes = bytes => (bytes / 1e6).toFixed(1);

async function loaded(report, giveUp) {
  const engine = await (await fetch(new URL("engine.json", here))).json();
  const home = new URL(engine.pyodide, here).href, plainFetch = self.fetch.bind(self);
  const sizes = Object.values(engine.files).map(({bytes}) => bytes), total = sizes.reduce((a, b) => a + b, 0);
  let arrived = 0;
  const count = bytes => {
    arrived += bytes;
    report({progress: Math.min(1, arrived / total), words: `${megabytes(arrived)} of ${megabytes(total)} MB`});
  };
  // Pyodide's own loads pass here, too: each file must have its hash, and is counted as it comes
  const get = async (address, options) => {
    const name = String(address).startsWith(home) ? String(address).slice(home.length) : "";
    if (!engine.files[name]) return plainFetch(address, options);
    const response = await plainFetch(address, {...options, integrity: engine.files[name].integrity}).catch(error => {
      giveUp(Error(`${address}: ${error.message}`));  // Pyodide itself would wait for ever
      throw error;
    });
    const counted = new TransformStream({transform(piece, out) { count(piece.byteLength); out.enqueue(piece); }});
    return new Response(response.body.pipeThrough(counted), {headers: response.headers});  // wasm compiles as it comes
  };
  self.fetch = get;
  // a module that is imported by its address has no hash: its text is fetched, and imported from memory
  const module = async name => {
    const text = await (await get(home + name)).text();
    return import(URL.createObjectURL(new Blob([text], {type: "text/javascript"})));
  };
  const [{loadPyodide}, {default: createPyodideModule}, archive] = await Promise.all([
    module("pyodide.mjs"), module("pyodide.asm.mjs"), plainFetch(new URL("minipipe.zip", here)).then(response => response.arrayBuffer()),
  ]);
  const pyodide = await loadPyodide({indexURL: home, createPyodideModule});
  pyodide.unpackArchive(archive, "zip", {extractDir: "/minipipe"});
  // a run makes many objects and no cycles: Python's collector would take a fifth of its time
  pyodide.runPython("import gc, sys; gc.set_threshold(100_000); sys.path.insert(0, '/minipipe')");
  return pyodide.pyimport("lab").answer;
}

// One request at a time. While Python works no message is heard, so each request waits until all that came meanwhile are in line:
// of several runs in line, only the newest is made.

const line = [];
let answer = null, working = false;

self.onmessage = ({data}) => {
  const older = data.ask === "run" ? line.findIndex(({ask}) => ask === "run") : -1;
  if (older >= 0) postMessage({id: line.splice(older, 1)[0].id, skipped: true});
  line.push(data);
  work();
};

async function work() {
  if (working || !answer) return;
  working = true;
  while (true) {
    await new Promise(done => setTimeout(done));
    if (!line.length) break;
    const {id, ask, ...given} = line.shift();
    try {
      postMessage({id, text: answer(ask, JSON.stringify(given), news => postMessage({id, news: JSON.parse(news)}))});
    } catch (error) {
      postMessage({id, crashed: error.message});
    }
  }
  working = false;
}

const begin = performance.now();
new Promise((ready, giveUp) => loaded(message => postMessage(message), giveUp).then(ready, giveUp)).then(made => {
  answer = made;
  postMessage({ready: true, seconds: (performance.now() - begin) / 1000, text: answer("known", "{}")});
  work();
}, error => postMessage({failed: error.message}));
