// The playground: settings in the address, minipipe's own engine in a worker, two runs in one picture.
import {SvgPen, amountText, clamp, duration, readRun} from "./paint.js";
import {$, KEYS, also, canvas, choose, chosen, draw, element, found, kindsShown, paint, peakOf, percent, place, root, runs, showRuns,
        showTheme, tone, unzoomed, whole} from "./view.js";

const form = $("rail");
const fields = name => form.elements[name] || document.getElementsByName(name)[0];
const stored = JSON.parse($("stored").textContent);
const KINDS = Object.assign({}, ...Object.values(stored.runs).map(({kinds}) => kinds));  // {kind: [bright, dark, name]}

// ---- the settings, which are in the address, too ----

const NUMBERS = /^[\d.]+(\/\d+)?([ ,]+[\d.]+(\/\d+)?)*$/;
const FIELDS = {
  s: {first: "1f1b"}, vs: {first: "none"}, K: {first: 4, low: 1, high: 32}, M: {first: 8, low: 1, high: 128},
  F: {first: "1", pattern: NUMBERS}, I: {first: "1", pattern: NUMBERS}, W: {first: "1", pattern: NUMBERS},
  lat: {first: "0", pattern: NUMBERS}, tr: {first: "0", pattern: NUMBERS}, alive: {first: "", pattern: NUMBERS},
  D: {first: 1, low: 1, high: 8}, T: {first: 1, low: 1, high: 8}, zero: {first: 0, low: 0, high: 3},
  grad: {first: "0", pattern: NUMBERS}, act: {first: "0", pattern: NUMBERS},
  own: {first: "", pattern: /\S/}, theme: {first: "", pattern: /^(light|dark)$/},
};
const WELCOME = "#vs=zb-h1";  // an empty address
const OWN = {name: "own", title: "Your order"};
const titles = {own: OWN.title};
const state = {};
let profile = null, before = "1f1b", told = "";  // text of a CSV, or null; the schedule before an order of one's own; the note

function take() {  // read the address; return what it asks for that is replaced
  const asked = new URLSearchParams((location.hash.length > 1 ? location.hash : WELCOME).slice(1)), said = [];
  for (const [key, {first, low, high, pattern}] of Object.entries(FIELDS)) {
    let value = asked.get(key) ?? first;
    if (key === "own") value = value.replaceAll("~", "\n").replaceAll(".", " ");
    const names = key === "s" ? Object.keys(titles) : key === "vs" ? ["none", ...Object.keys(titles).filter(name => name !== "own")] : null;
    if (low !== undefined) {
      const near = Number.isFinite(Number(value)) ? clamp(Math.round(value), low, high) : first;
      if (String(near) !== String(value)) said.push(`${key}=${value} is outside ${low} to ${high}: this is ${key}=${near}.`);
      value = near;
    } else if (names ? !names.includes(value) : value !== first && !pattern.test(value)) {
      said.push(`${key}=${value} is not known: this is ${key}=${first || "any"}.`);
      value = first;
    }
    state[key] = value;
  }
  return said.join(" ");
}

function address() {
  const written = Object.entries(FIELDS).filter(([key, {first}]) => String(state[key]) !== String(first)).map(([key]) => {
    const value = key === "own" ? state.own.trim().split(/\s*\n\s*/).join("~").replace(/[ \t]+/g, ".") : state[key];
    return `${key}=${encodeURIComponent(value).replace(/%(2C|2F)/g, decodeURIComponent)}`;
  });
  return `#${written.join("&")}`;
}

function follow() {  // an order of one's own says how many devices and micro-batches there are
  state.K = state.own.trim().split("\n").length;
  state.M = 1 + Math.max(0, ...[...state.own.matchAll(/[A-Z]\*?(\d+)/g)].map(found => +found[1]));
}

function update(changes, {runs = true, note = ""} = {}) {  // set anything
  Object.assign(state, changes);
  if (state.s === "own") follow(); else state.own = "";
  history.replaceState(null, "", address());
  fill();
  say(told = note);
  if (runs) run();
}

const say = words => $("note").textContent = words;
const LARGE = 8000, MOST_BOXES = 100_000;  // a large run is made when a slider is let go
const boxesOf = ({K, M, D, T, vs}) => 3 * K * M * D * T * (vs === "none" ? 1 : 2);  // about

function fill() {  // the form, from the state
  for (const key of Object.keys(FIELDS)) {
    const field = fields(key);
    if (field && field.value !== String(state[key])) field.value = state[key];
  }
  for (const key of ["K", "M"]) {
    fields(key).disabled = state.s === "own";
    fields(key).parentNode.querySelector("output").textContent = state[key];
  }
  for (const key of ["F", "I", "W", "tr", "grad"]) fields(key).disabled = profile !== null;
  for (const key of ["zero", "grad"]) fields(key).disabled = state.D === 1;
  fields("act").disabled = state.T === 1;
  $("unprofile").hidden = profile === null;
  $("large").hidden = boxesOf(state) <= LARGE;
  $("own").hidden = state.s !== "own";
  $("edit").textContent = state.s === "own" ? `Back to ${titles[before]}` : "Edit this order";
  showTheme();
  $("theme").textContent = root.dataset.theme === "dark" ? "Light" : "Dark";
}

function settingsOf(schedule) {
  const {K, M, F, I, W, D, T, zero} = state, own = schedule === "own" ? state.own : "";
  return {schedule, own, K, M, F, I, W, D, T, zero, latency: state.lat, transfer: state.tr, gradients: state.grad,
          activations: state.act, alive: state.alive || null, profile};
}

// ---- the engine ----

function start(address, hear) {  // a worker; `ask` promises an answer, null if a newer run took its place
  const worker = new Worker(address, {type: "module"}), waiting = new Map();
  let asked = 0;
  worker.onmessage = ({data}) => {
    const waits = waiting.get(data.id);
    if (!waits || data.news) return hear(data);
    waiting.delete(data.id);
    if (data.crashed) waits.reject(Error(data.crashed)); else waits.resolve(data.skipped ? null : JSON.parse(data.text));
  };
  worker.onerror = event => hear({failed: event.message || "this page needs a server: minipipe site FOLDER --serve"});
  const ask = (what, more) => new Promise((resolve, reject) => {
    waiting.set(++asked, {resolve, reject});
    worker.postMessage({id: asked, ask: what, ...more});
  });
  return {ask, stop: () => worker.terminate()};
}

let engine = null, ready = false, failed = "";

function hear({progress, words, ready: isReady, text: answer, failed: why}) {
  const status = (name, said) => {
    $("engine").className = name;
    $("engine").lastElementChild.textContent = said;
  };
  if (progress !== undefined) status("", `loading ${words}`);
  if (why) {
    failed = why;
    status("failed", "no engine: stored runs only");
    showStored();
  }
  if (!isReady) return;
  ready = true;
  list(JSON.parse(answer).schedules);
  status("live", "live");
  $("edit").disabled = false;
  update({}, {note: told});
}

async function run() {
  if (!ready) return showStored();
  const {s, vs} = state, [boxes, most] = [boxesOf(state), MOST_BOXES].map(number => number.toLocaleString("en"));
  if (boxesOf(state) > MOST_BOXES)
    return refuse(`about ${boxes} boxes are more than the page draws, ${most}: take fewer devices, micro-batches, replicas or shards`);
  try {
    const answer = await engine.ask("run", {sides: [settingsOf(s), vs === "none" ? null : settingsOf(vs)]});
    if (answer) show(answer.runs, answer.sentence);
  } catch (error) {
    refuse(`The engine failed: ${error.message}`);
  }
}

function showStored() {
  const name = stored.runs[state.s] ? state.s : "1f1b", pair = `${name} ${state.vs}`;
  const asked = Object.keys(FIELDS).filter(key => String(state[key]) !== String(FIELDS[key].first) && !["s", "vs", "theme"].includes(key));
  const isIt = !asked.length && name === state.s && (state.vs === "none" || stored.runs[state.vs]);
  show([stored.runs[name], isIt && stored.runs[state.vs] || null], stored.sentences[pair] || stored.sentences[name]);
  $("stage").classList.toggle("old", !isIt);
  const which = isIt ? "" : `This is ${titles[name]} with 4 devices and 8 micro-batches, as stored. `;
  if (failed) say(`${which}The engine could not be loaded: ${failed}`);
  else if (which) say(`${which}Yours follows when the engine is ready.`);
}

function list(schedules) {  // the names to choose from, by family
  const options = new Map();
  for (const {name, title, family} of schedules) {
    titles[name] = title;
    if (!options.has(family)) options.set(family, []);
    options.get(family).push([name, title]);
  }
  for (const [key, first] of [["s", OWN], ["vs", {name: "none", title: "nothing"}]]) {
    fields(key).replaceChildren(element("option", first.title, {value: first.name}), ...[...options].map(([label, each]) => {
      const group = element("optgroup", "", {label: label || "More"});
      group.append(...each.map(([value, title]) => element("option", title, {value})));
      return group;
    }));
  }
}

// ---- the page around the picture ----

function show(answers, sentence) {
  const [first, second] = answers;
  $("stage").classList.remove("old");
  if (first.refused) return refuse(first.refused);
  const run = first.faults ? first.stopped : first, faults = first.faults || [];
  showFaults(faults);
  if (faults.length) headline(faults[0].words, true); else headline(sentence);
  if (!run) {
    $("numbers").replaceChildren();
    return $("stage").classList.add("old");
  }
  run.stopped = faults.length > 0;
  const said = [told, run.over?.length && `It does not fit: ${run.over[0]}.`, second?.refused && `${titles[state.vs]}: ${second.refused}.`];
  say(said.filter(Boolean).join(" "));
  $("note").classList.toggle("alarm", Boolean(said[1] || said[2]));
  const shown = [run, second && second.spans ? second : null].filter(Boolean).map(readRun);
  for (const {picture} of shown) picture.onlyNumbers = true;
  showRuns(shown);
  showNumbers();
  $("why").replaceChildren(...runs.map(run => element("pre", `${run.title}\n${run.explanation ?? ""}`)));
  offerSearch();
}

function refuse(words) {  // the old picture stays, faded
  headline(words, true);
  showFaults([]);
  $("stage").classList.add("old");
}

function headline(words, alarm = false) {
  if (alarm) words = `${words[0].toUpperCase()}${words.slice(1)}.`;  // an error of the package has no capital and no full stop
  const names = Object.values(titles).sort((a, b) => b.length - a.length).map(name => name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  const parts = new RegExp(`\\b\\d+[FBIWR]\\d+\\b|${names.join("|")}|[\\d.]+(?:/\\d+)? (?:ticks?|%|more|fewer)`, "g");
  let from = 0;
  $("sentence").replaceChildren();
  $("sentence").classList.toggle("alarm", alarm);
  for (const found of alarm ? [] : words.matchAll(parts)) {
    $("sentence").append(words.slice(from, found.index), element("b", found[0]));
    from = found.index + found[0].length;
  }
  $("sentence").append(words.slice(from));
}

function showFaults(faults) {
  const marked = new Set(faults.map(({device}) => device));
  const lines = state.own.split("\n");
  $("editor").firstElementChild.replaceChildren(...lines.flatMap((_, i) => [element(marked.has(i) ? "b" : "span", i), "\n"]));
  fields("own").rows = lines.length + 1;
  $("faults").replaceChildren(...faults.map(({device, position, words}) => {
    const item = element("li"), place = `Line ${device}${position === null ? "" : `, action ${position + 1}`}`;
    if (device !== null) item.append(element("button", place, {type: "button", onclick: () => select(device, position)}));
    item.append(faults.length === 1 ? "" : `${device === null ? "" : ": "}${words}`);
    return item;
  }));
}

function select(device, position) {  // an action in the text of the order
  const lines = state.own.split("\n"), offset = lines.slice(0, device).reduce((sum, line) => sum + line.length + 1, 0);
  const word = [...(lines[device] || "").matchAll(/\S+/g)][position ?? 0];
  fields("own").focus();
  if (word) fields("own").setSelectionRange(offset + word.index, offset + word.index + word[0].length);
}

function showNumbers() {
  const [run, rival] = runs;
  const peak = run.memory.unit === "bytes" ? "peak memory of a device" : "micro-batches at the peak";
  const stop = [["tick at which nothing goes on", run.text(run.makespan)], ["actions not done", run.left]];
  const numbers = run.stopped ? stop : [
    ["makespan", run.text(run.makespan), rival?.text(rival.makespan)],
    ["of all time idle", percent(run.bubble), rival && percent(rival.bubble)],
    [peak, amountText(peakOf(run), run), rival && amountText(peakOf(rival), rival), run.over?.length > 0],
  ];
  $("numbers").replaceChildren(...numbers.map(([name, value, other, alarm]) => {
    const group = element("div"), number = element("dd", value, {className: alarm ? "alarm" : ""});
    if (other) {
      const beside = element("span", `${other} `);
      beside.append(element("small", rival.title));
      number.append(beside);
    }
    group.append(element("dt", name), number);
    return group;
  }));
}

// ---- an order of one's own: typed, moved by keys, dragged ----

async function lines() {  // the words of each device's line of the first run
  const order = state.s === "own" ? state.own : (await engine.ask("lines", {side: 0})).lines;
  return order.trim().split("\n").map(line => line.trim().split(/\s+/));
}

const moved = (order, device, from, to) => order.map((words, line) => {
  if (line !== device) return words.join(" ");
  const rest = words.filter((_, i) => i !== from);
  return [...rest.slice(0, to), words[from], ...rest.slice(to)].join(" ");
}).join("\n");

function keep(own) {
  if (state.s !== "own") before = state.s;
  update({s: "own", own});
}

const mayMove = (side, item) => ready && side === 0 && state.D * state.T === 1 && !item.causes && item.action != null;

function grab({item}) {  // a box: the order follows it
  const was = {...state}, {picture} = runs[0], {lane, action} = item;
  let order = null, place = action;
  lines().then(found => order = found);
  return {
    whole: whole(),
    to({offsetX}) {
      const time = picture.from + (offsetX - picture.left) / picture.scale;
      const to = lane.work.filter(({action: each, start, end}) => each != null && each !== action && (start + end) / 2 < time).length;
      if (order && to !== place) keep(moved(order, lane.device, action, place = to));
    },
    drop(undo) {
      if (undo || place === action) update({s: was.s, own: was.own, K: was.K, M: was.M});
    },
  };
}

async function moveChosen(by) {  // Alt and an arrow
  const asked = found(chosen);
  if (!asked || !mayMove(asked.side, asked.item)) return;
  const order = await lines(), {lane, action} = asked.item, to = clamp(action + by, 0, order[lane.device].length - 1);
  if (to === action) return;
  choose({...chosen, index: clamp(chosen.index + by, 0, lane.work.length - 1)});
  keep(moved(order, lane.device, action, to));
}

// ---- the certificate ----

let searcher = null, searching = false, better = "";

function offerSearch() {  // of orders with one stage on each device, a flush, and links that are never full
  const [run] = runs, isPlain = Object.keys(run.kinds).every(kind => "FBIW".includes(kind)) && run.stages === run.K && run.most_stages === 1;
  $("certificate").hidden = !ready || run.stopped || state.K * state.M > 64 || !isPlain || +state.tr !== 0 || profile !== null;
  $("show").hidden = true;
  if (!searching) $("found").textContent = "";
}

function searchIs(on) {
  searching = on;
  $("search").textContent = on ? "Stop" : "Is there a shorter order?";
}

async function search() {
  if (searching) {  // a search cannot be interrupted, but its worker can be ended
    searcher.stop();
    searcher = null;
    $("found").textContent = "";
    return searchIs(false);
  }
  const [run] = runs, settings = settingsOf(state.s);
  searchIs(true);
  $("found").textContent = searcher ? "Searching ..." : "A second engine starts ...";
  searcher ??= start("worker.js?search", ({news, failed: why}) => {
    if (news) $("found").textContent = `Searching: ${news.nodes.toLocaleString("en")} partial orders ...`;
    if (why) $("found").textContent = `The second engine could not be loaded: ${why}`;
  });
  try {
    const answer = await searcher.ask("search", {settings, halves: "I" in run.busy || "W" in run.busy, nodes: 20000, seconds: 10});
    $("found").textContent = run === runs[0] ? certify(answer, run) : "";
  } catch (error) {
    $("found").textContent = `The search failed: ${error.message}`;
  }
  searchIs(false);
}

function certify({refused, makespan, bound, proved, nodes, lines}, run) {
  if (refused) return refused;
  const isOver = run.over?.length > 0, isShorter = makespan < run.makespan - 1e-9;
  better = isShorter || isOver ? lines : "";
  $("show").hidden = !better;
  const open = `None can be shorter than ${duration(bound, run)}; ${nodes.toLocaleString("en")} steps of the search did not settle the rest.`;
  const rest = proved ? "No order of these actions is shorter." : open;
  if (isOver) return `This order is over the limit. Within it, the shortest order found takes ${duration(makespan, run)}. ${rest}`;
  if (isShorter) return `Yes: one takes ${duration(makespan, run)}, ${run.text(run.makespan - makespan)} fewer. ${rest}`;
  return proved ? `No: this is proved to be the shortest order of these actions, ${duration(run.makespan, run)}.` : `None was found. ${rest}`;
}

// ---- files ----

function download(name, type, content) {
  const link = element("a", "", {download: name, href: URL.createObjectURL(new Blob([content], {type}))});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function drawFrame(pen, width, height) {  // paper and legend of a picture that is saved
  const colours = tone();
  let left = 14;
  pen.box(0, 0, width, height, colours.paper);
  for (const [fill, words] of kindsShown()) {
    pen.box(left, 16, 13, 13, fill.box, 3);
    pen.words(words, left + 20, 23, colours.soft, 13, "left");
    left += 44 + 7 * words.length;
  }
}

async function save(as) {
  if (as === "svg") unzoomed(() => {
    const pen = new SvgPen(), width = Math.max(700, canvas.clientWidth), height = place(width).height + 58;
    drawFrame(pen, width, height);
    pen.parts.push(`<g transform="translate(0 44)">`);
    paint(pen, place(width), tone());
    pen.parts.push("</g>");
    const file = pen.file(width, height, canvas.getAttribute("aria-label"));
    download(`minipipe-${state.s}-${state.K}x${state.M}.svg`, "image/svg+xml", file);
  }); else {
    const answer = await engine.ask("export", {side: 0, as});
    if (answer.refused) say(answer.refused); else download(answer.name, answer.type, answer.text);
  }
  $("save").parentNode.open = false;
}

async function takeProfile(file) {
  profile = file ? await file.text() : null;
  if (!file) $("profile").value = "";
  $("layers").open = true;
  update({}, {note: file ? `${file.name} sets the costs now. It is not part of the link.` : ""});
}

// ---- what happens ----

form.onsubmit = event => event.preventDefault();
form.oninput = ({target}) => {
  const {name, type, value} = target;
  if (!(name in FIELDS)) return;
  const {first, low, high, pattern} = FIELDS[name];
  const isRight = pattern ? value === first || pattern.test(value) : low === undefined || (value !== "" && value >= low && value <= high);
  target.classList.toggle("wrong", !isRight);
  if (!isRight) return;
  if (name === "s" && value === "own") return edit();
  update({[name]: low === undefined ? value : +value}, {runs: type !== "range" || !isLargeWith(name, +value)});
};
form.onchange = ({target: {type, name}}) => { if (type === "range" && isLargeWith(name, state[name])) run(); };
const isLargeWith = (name, value) => boxesOf({...state, [name]: value}) > LARGE;

fields("own").oninput = event => update({own: event.target.value});

async function edit() {
  if (state.s === "own") return update({s: before});
  keep((await lines()).map(words => words.join(" ")).join("\n"));
  fields("own").focus({preventScroll: true});
  $("own").scrollIntoView({block: "nearest"});
}

$("edit").onclick = edit;
$("theme").onclick = () => update({theme: root.dataset.theme === "dark" ? "light" : "dark"}, {runs: false});
$("search").onclick = search;
$("show").onclick = () => keep(better.trim());
$("unprofile").onclick = () => takeProfile(null);
$("profile").onchange = ({target}) => target.files[0] && takeProfile(target.files[0]);
$("save").onclick = ({target}) => target.dataset.as && save(target.dataset.as);
Object.assign(also, {
  mayMove, grab, moveChosen,
  theme: () => state.theme,
  describe: ({side, item: {i}}) => ready ? engine.ask("describe", {side, i}) : {},
});
KEYS.d = () => $("theme").click();
onhashchange = () => update({}, {note: take()});
if (innerWidth <= 820) $("costs").open = false;

list(stored.schedules);
$("rail").querySelectorAll("i[data-kind]").forEach(icon => {
  Object.assign(icon.style, {background: KINDS[icon.dataset.kind][0], color: "#000"});
});
update({}, {runs: false, note: take()});
showStored();
try {
  engine = start("worker.js", hear);
} catch (error) {
  hear({failed: error.message});
}
window.playground = {  // for tests, and for the curious
  state, get runs() { return runs; },
  at(side, device, action) {  // the middle of a box, in pixels of the window
    const run = runs[side], box = canvas.getBoundingClientRect();
    const item = run.items.find(each => each.lane.device === device && each.action === action);
    return {x: box.left + run.picture.x((item.start + item.end) / 2), y: box.top + item.lane.top + item.lane.box / 2};
  },
};
