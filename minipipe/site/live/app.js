// The playground: settings in the address, minipipe's own engine in a worker, two runs in one picture.
import {CanvasPen, SvgPen, amountAt, amountText, clamp, describe, duration, lastAt, readRun} from "./paint.js";

const $ = id => document.getElementById(id);
const form = $("rail"), canvas = $("picture"), root = document.documentElement;
const fields = name => form.elements[name] || document.getElementsByName(name)[0];
const stored = JSON.parse($("stored").textContent);
const KINDS = Object.assign({}, ...Object.values(stored.runs).map(({kinds}) => kinds));  // {kind: [bright, dark, name]}

function element(tag, words = "", more = {}) {
  return Object.assign(document.createElement(tag), {textContent: words}, more);
}

// ---- what is set, and the address, which says the same ----

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

function take() {  // read the address; return what it asks that cannot be had
  const asked = new URLSearchParams((location.hash.length > 1 ? location.hash : WELCOME).slice(1)), said = [];
  for (const [key, {first, low, high, pattern}] of Object.entries(FIELDS)) {
    let value = asked.get(key) ?? first;
    if (key === "own") value = value.replaceAll("~", "\n").replaceAll(".", " ");
    const names = key === "s" ? Object.keys(titles) : key === "vs" ? ["none", ...Object.keys(titles).filter(name => name !== "own")] : null;
    if (low !== undefined) {
      const near = Number.isFinite(Number(value)) ? clamp(Math.round(value), low, high) : first;
      if (String(near) !== String(value)) said.push(`${key}=${value} cannot be had: ${key} is ${low} to ${high}, so this is ${key}=${near}.`);
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

function update(changes, {runs = true, note = ""} = {}) {  // the one way in which anything is set
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
  const dark = state.theme ? state.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "dark" : "light";
  $("theme").textContent = dark ? "Light" : "Dark";
  draw();
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

let engine = null, ready = false, runs = [], failed = "";

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
    return refuse(`about ${boxes} boxes are more than the page draws, ${most}: take fewer devices, micro-batches, copies or shards`);
  try {
    const answer = await engine.ask("run", {sides: [settingsOf(s), vs === "none" ? null : settingsOf(vs)]});
    if (answer) show(answer.runs, answer.sentence);
  } catch (error) {
    refuse(`The engine stumbled: ${error.message}`);
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

const text = time => String(+time.toFixed(3));
const percent = share => share === null ? "-" : `${100 * share < 10 ? +(100 * share).toFixed(1) : Math.round(100 * share)} %`;
const peakOf = ({memory}) => Math.max(0, ...memory.peaks);

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
  runs = [run, second && second.spans ? second : null].filter(Boolean).map(readRun);
  for (const {picture} of runs) picture.onlyNumbers = true;
  if (view && view.to > whole()) view = null;
  focus = null;
  if (chosen) choose(chosen);
  showNumbers();
  showLegend();
  showBars();
  showTable();
  offerSearch();
  draw();
}

function refuse(words) {  // the old picture stays, faded
  headline(words, true);
  showFaults([]);
  $("stage").classList.add("old");
}

function headline(words, alarm = false) {
  if (alarm) words = `${words[0].toUpperCase()}${words.slice(1)}.`;  // an error of the package has no capital and no full stop
  const names = Object.values(titles).sort((a, b) => b.length - a.length).map(name => name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  const parts = new RegExp(`\\b(\\d+[FBIWR]\\d+)\\b|(${names.join("|")}|[\\d.]+(?:/\\d+)? (?:ticks?|%)|[\\d.]+(?:/\\d+)? (?:more|fewer))`, "g");
  let from = 0;
  $("sentence").replaceChildren();
  $("sentence").classList.toggle("alarm", alarm);
  for (const found of alarm ? [] : words.matchAll(parts)) {
    $("sentence").append(words.slice(from, found.index), found[1] ? chip(found[1]) : element("b", found[0]));
    from = found.index + found[0].length;
  }
  $("sentence").append(words.slice(from));
}

function chip(action) {  // an action in the colour of its box
  const made = element("mark", action);
  Object.assign(made.style, {background: KINDS[action.match(/[A-Z]/)[0]]?.[0] ?? "#C0C0C0", color: "#000"});
  return made;
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
  const stop = [["tick at which nothing goes on", text(run.makespan)], ["actions not done", run.left]];
  const numbers = run.stopped ? stop : [
    ["makespan", text(run.makespan), rival && text(rival.makespan)],
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

function kindsShown() {  // {kind: [fill, words]} of all runs
  const found = {};
  for (const run of runs) for (const kind of new Set(run.spans.kind))
    found[kind] ??= [run.picture.fillOf(kind, 0), `${kind.length === 1 ? `${kind} ` : ""}${run.kinds[kind][2]}`];
  const darker = runs.find(run => run.most_stages > 1);
  if (darker) found.darker = [darker.picture.fillOf("F", darker.most_stages - 1), "darker: a further stage of the device"];
  return Object.values(found);
}

function showLegend() {
  $("legend").replaceChildren(...kindsShown().map(([fill, words]) => {
    const item = element("li"), sample = element("i");
    sample.style.background = fill.box;
    item.append(sample, words);
    return item;
  }));
}

function showBars() {
  $("bars").replaceChildren(...runs.filter(run => !run.stopped).flatMap(run => {
    const bar = element("div", "", {className: "bar"}), all = run.makespan * run.devices;
    const parts = [...Object.entries(run.busy).map(each => [...each, true]), ...Object.entries(run.causes)];
    for (const [name, value, isWork] of parts.filter(([, value]) => value > 0)) {
      const button = element("button", "", {title: `${name}: ${duration(value, run)}, ${percent(value / all)}`, type: "button"});
      button.setAttribute("aria-label", `${run.title}, ${button.title}`);
      button.style.flexGrow = value;
      Object.assign(button.dataset, {long: `${name} ${text(value)}`, short: name});
      if (isWork) {
        const fill = run.picture.fillOf(name.split("&")[0], 0);
        Object.assign(button.style, {background: fill.box, color: fill.text});
      } else {
        button.onpointerenter = button.onfocus = () => { cause = [run, name]; draw(); };
        button.onpointerleave = button.onblur = () => { cause = null; draw(); };
      }
      bar.append(button);
    }
    return [element("span", run.title), bar];
  }));
  fitBars();
}

function fitBars() {  // words only where there is room
  for (const button of $("bars").querySelectorAll("button")) {
    const {long, short} = button.dataset, room = button.clientWidth / 6.8 - 1;
    button.textContent = long.length < room ? long : short.length < room ? short : "";
  }
}

function showTable() {
  const causes = [...new Set(runs.flatMap(run => Object.keys(run.causes)))], kinds = [...new Set(runs.flatMap(run => Object.keys(run.busy)))];
  const rows = [
    ["makespan", run => run.exact.includes("/") ? `${run.exact} = ${text(run.makespan)}` : run.exact],
    ["idle", run => percent(run.bubble)],
    [`peak by device, ${runs[0].memory.unit}`, run => run.memory.peaks.map(peak => amountText(peak, run)).join(", ")],
    ["messages", run => run.messages.label.length],
    ...kinds.map(kind => [`ticks of ${kind}`, run => text(run.busy[kind] || 0)]),
    ...causes.map(name => [`idle ticks: ${name}`, run => text(run.causes[name] || 0)]),
  ];
  const table = element("table"), head = table.createTHead().insertRow(), body = table.createTBody();
  head.append(...["", ...runs.map(run => run.title)].map(words => element("th", words, {scope: "col"})));
  for (const [name, value] of rows) body.insertRow().append(element("th", name, {scope: "row"}), ...runs.map(run => element("td", value(run))));
  $("table").replaceChildren(table, ...runs.map(run => element("pre", `${run.title}\n${run.explanation ?? ""}`)));
}

// ---- the picture ----

let view = null, now = null, playing = false, showPath = false, showMessages = false;  // view: {from, to}, or null for all
let focus = null, chosen = null, cause = null, drag = null;  // {side, item, time}; {side, lane, index}; [run, name]; see `grab`

const whole = () => Math.max(1e-9, drag?.whole ?? 0, ...runs.map(run => run.makespan));
const sizesOf = ({devices, memory}) => {
  const place = [4, 8, 16, 32, Infinity].findIndex(most => devices <= most);
  const strips = memory.limits ? [22, 15, 7, 5, 4] : [15, 11, 7, 5, 4], gaps = showMessages ? [18, 14, 8, 4, 1] : [4, 4, 3, 2, 1];
  return {box: [31, 26, 17, 11, 7][place], beside: [18, 14, 11, 8, 5][place], gap: gaps[place], apart: 2, strip: memory.unit ? strips[place] : 0};
};
const fontOf = box => clamp(box - 1, 6, 13);

function place(width) {  // where everything is; returns the height
  const names = runs.flatMap(run => run.lanes.map(({name}) => name.length)), narrow = width < 620;
  const left = narrow ? 30 : clamp(6.7 * Math.max(...names) + 14, 72, 150);
  const peaks = Math.max(...runs.map(run => amountText(peakOf(run), run).length)) * 7 + 22, [{stopped, makespan}] = runs;
  const ends = Math.max(peaks, stopped ? 118 - (1 - makespan / whole()) * (width - left - peaks) : 0);  // the tags need room
  let top = 0;
  for (const run of runs) {
    const sizes = sizesOf(run);
    run.picture.place(top + 26, {...sizes, strip: 0});
    Object.assign(run, {sizes, top, narrow, axis: run.picture.bottom + 9});
    run.foot = run.axis + 12 + run.devices * (sizes.strip && sizes.strip + (sizes.strip < 6 ? 0 : 2));
    top = run.foot + 22;
  }
  return {left, right: width - ends, height: top - 10};
}

function tone() {
  const style = getComputedStyle(root), names = ["paper", "ink", "soft", "track", "line", "level", "alarm"];
  return Object.fromEntries(names.map(name => [name, style.getPropertyValue(`--${name}`).trim()]));
}

function draw() {
  if (!runs.length || !canvas.clientWidth) return;
  const width = canvas.clientWidth, at = place(width), {height} = at;
  const [wide, high] = [width, height].map(size => Math.round(size * devicePixelRatio));
  if (canvas.width !== wide || canvas.height !== high) {
    Object.assign(canvas, {width: wide, height: high});
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
  context.clearRect(0, 0, width, height);
  paint(new CanvasPen(context), at, tone());
  const said = runs.map(run => `${run.title}: ${run.devices} devices, ${duration(run.makespan, run)}`);
  canvas.setAttribute("aria-label", `Timeline of ${said.join("; ")}`);
  showNow();
}

let planned = 0;
const drawSoon = () => planned ||= requestAnimationFrame(() => { planned = 0; draw(); });  // once a frame, however fast the pointer

function paint(pen, {left, right}, tone) {
  const {from, to} = view || {from: 0, to: whole()};
  const longest = Math.max(...runs.map(run => run.makespan));
  for (const [side, run] of runs.entries()) {
    const {picture, lanes} = run, alphaOf = alphaFor(side);
    picture.look(pen, tone, {left, right, from, to});
    if (pen.context) clipTo(pen.context, left - 3, run.top, right - left + (view ? 6 : 200), 1e4);
    const length = lanes.reduce((most, lane) => most || picture.lengthOfWords(picture.visible(lane.work), lane), 0);
    for (const lane of lanes) picture.drawLane(lane, {alphaOf, length});
    if (showPath && !run.stopped) picture.drawPath(run.steps);
    for (const arrow of arrowsOf(side)) picture.drawMessage(arrow, now, 1.2);
    drawGaps(run, side, tone);
    picture.drawAxis(run.axis, text, run.step, run.makespan);
    drawEnd(run, longest, tone);
    drawMemories(run, tone, right);
    if (pen.context) pen.context.restore();
    drawNames(run, left, tone);
  }
  if (drag?.moved && pen.context) drawGhost(pen, tone);
}

function clipTo(context, ...box) {
  context.save();
  context.beginPath();
  context.rect(...box);
  context.clip();
}

function alphaFor(side) {
  if (cause) return cause[0] === runs[side] ? () => 0.25 : null;
  const asked = focus ?? found(chosen);
  if (!asked) return null;
  const {item} = asked, PALE = 0.25;
  if (item.causes) {  // a gap: the boxes to blame stay bright
    const blamed = new Set(item.blame?.map(i => runs[asked.side].items[i]));
    return asked.side === side ? each => blamed.has(each) ? 1 : PALE : null;
  }
  const same = item.parts.filter(({microbatch}) => microbatch !== null);
  return each => each === item || each.parts.some(({microbatch, copy}) =>
    same.some(other => other.microbatch === microbatch && other.copy === copy)) ? 1 : PALE;
}

function arrowsOf(side) {  // all, if they are few, or those of the micro-batch that is lit; while time stands, those under way
  if (!showMessages) return [];
  const {arrows} = runs[side], {from, to} = view || {from: 0, to: Infinity}, asked = focus ?? found(chosen);
  const inView = arrows.filter(({start, end}) => end >= from && start <= to && (now === null || (start <= now && now <= end)));
  const lit = new Set(asked && !asked.item.causes ? asked.item.parts.map(({microbatch}) => `${microbatch}`) : []);
  return lit.size ? inView.filter(({label}) => lit.has(/\d*$/.exec(label)[0])) : inView.length <= 150 ? inView : [];
}

function drawGaps(run, side, tone) {  // that are asked for: one, or all of a cause
  const asked = focus ?? found(chosen), {picture} = run;
  if (asked?.side === side) picture.frame(asked.item, asked.item.lane, tone.ink, 1.6);
  if (cause?.[0] === run) for (const lane of run.lanes) for (const gap of picture.visible(lane.idle))
    if (gap.causes.some(([name]) => name === cause[1])) {
      picture.pen.box(picture.x(gap.start), lane.top, (gap.end - gap.start) * picture.scale, lane.box, tone.level, 3);
      picture.frame(gap, lane, tone.ink, 1);
    }
}

function drawEnd(run, longest, tone) {  // of the run, and how much longer the other one is
  const {picture, lanes, axis} = run, {pen} = picture, x = picture.x(run.makespan), top = lanes[0].top - 4;
  pen.line([[x, top], [x, axis - 7]], tone.ink, 1.4);
  pen.words(text(run.makespan), x, axis, tone.ink, 12, "center", 700);
  if (run.stopped) return drawStop(run, tone);
  if (run.makespan >= longest) return;
  const far = picture.x(longest), middle = (top + axis) / 2 - 4, words = `${text(longest - run.makespan)} fewer`;
  pen.line([[far, top], [far, axis - 7]], tone.soft, 1, [2, 3]);
  if (far - x < 24) return;
  pen.line([[far - 4, middle], [x + 5, middle]], tone.soft);
  pen.line([[x + 10, middle - 4], [x + 5, middle], [x + 10, middle + 4]], tone.soft);
  if (far - x > 7 * words.length + 8) pen.words(words, (x + far) / 2, middle - 11, tone.soft, 12, "center", 600);
}

function drawStop(run, tone) {  // tags where devices stand, arrows to whom they wait for
  const {picture, lanes} = run, {pen} = picture, left = picture.x(run.makespan) + 9, width = 58;
  const laneOf = device => lanes.find(lane => lane.device === device && !lane.beside);
  run.stop.forEach(({device, action}) => {
    const {top, box} = laneOf(device);
    pen.box(left, top + 1, width, box - 2, tone.alarm, Math.min(4, box / 6));
    if (box > 9) pen.words(`? ${action}`, left + width / 2, top + box / 2 + 1, tone.paper, fontOf(box - 6), "center", 600);
  });
  run.stop.filter(({on}) => on !== null && laneOf(on)).forEach(({device, on}, i) => {
    const [from, to] = [device, on].map(laneOf), down = to.top > from.top ? 1 : -1, right = left + width + 12 + 7 * (i % 5);
    const start = from.top + from.box / 2 + down * from.box / 6, end = to.top + to.box / 2 - down * to.box / 6;
    pen.line([[left + width, start], [right, start], [right, end], [left + width + 2, end]], tone.alarm, 1.5);
    pen.line([[left + width + 7, end - 4], [left + width + 2, end], [left + width + 7, end + 4]], tone.alarm, 1.5);
  });
}

function drawMemories(run, tone, right) {
  const {picture, memories, memory, sizes: {strip}, axis} = run, {pen} = picture, peak = Math.max(1e-9, peakOf(run), ...(memory.limits ?? []));
  if (!strip) return;
  const pitch = strip + (strip < 6 ? 0 : 2), end = Math.min(picture.x(run.makespan), right);
  memories.forEach((curve, device) => {
    const bottom = axis + 12 + (device + 1) * pitch, limit = memory.limits?.[device] ?? null, isOver = limit !== null && memory.peaks[device] > limit;
    if (strip >= 6) pen.line([[picture.x(picture.from), bottom], [end, bottom]], tone.line);
    picture.drawMemory(curve, bottom, strip, peak, {limit});
    if (strip < 6 || view) return;
    const colour = isOver ? tone.alarm : tone.soft;
    pen.words(amountText(memory.peaks[device], run), end + 8, bottom - strip / 2 + 1, colour, clamp(strip, 9, 11.5), "left", 600);
  });
}

function drawNames(run, left, tone) {
  const {picture: {pen}, lanes, sizes: {strip, box}, narrow, axis, memory} = run;
  pen.words(run.stopped ? `${run.title}, until it stops` : run.title, left, run.top + 12, tone.ink, 15, "left", 700);
  for (const lane of lanes) {
    const name = lane.beside ? (narrow || lane.box < 8 ? "" : lane.name) : narrow || box < 9 ? `${lane.device}` : lane.name;
    if (name && (lane.box > 8 || lane.device % 4 === 0))
      pen.words(name, left - 9, lane.top + lane.box / 2 + 1, tone.soft, lane.beside ? 10.5 : clamp(box, 8, 13), "right");
  }
  if (!strip) return;
  const pitch = strip + (strip < 6 ? 0 : 2), every = Math.ceil(9 / pitch);
  if (!narrow) pen.words(memory.unit === "bytes" ? "bytes" : "alive", left - 9, axis + 2, tone.soft, 11, "right");
  for (let device = 0; device < run.devices; device += every)
    pen.words(`${device}`, left - 9, axis + 12 + device * pitch + pitch / 2 + 1, tone.soft, clamp(pitch - 1, 8, 11), "right");
}

// ---- what is asked of the picture: by the pointer, or by keys ----

function itemAt(x, y) {  // {side, item, time}, or null
  const side = runs.findIndex(run => y >= run.lanes[0].top - 2 && y <= run.axis - 6);
  if (side < 0) return null;
  const run = runs[side], {picture} = run, time = picture.from + (x - picture.left) / picture.scale;
  const lane = run.lanes.find(({top, box}) => y >= top - 2 && y < top + box + 3);
  if (!lane || time < 0 || time > run.makespan) return null;
  const at = list => { const item = list[lastAt(list, time)]; return item && time <= item.end ? item : null; };
  const mark = lane.marks.find(({start}) => Math.abs(start - time) * picture.scale < 5);
  const item = mark ?? at(lane.work) ?? at(lane.idle);
  return item && {side, item, time};
}

async function blame({side, item}) {  // the words and the boxes to blame of a gap, if the run left them out
  if (!item.causes || item.blame || !ready) return;
  const answer = await engine.ask("describe", {side, i: item.i});
  Object.assign(item, {words: answer.words, blame: answer.blame});
}

async function ask(asked) {
  if (asked?.item !== focus?.item) {
    focus = asked;
    drawSoon();
    if (asked) await blame(asked);
    if (asked === focus && asked?.item.causes) drawSoon();
  } else focus = asked;
  tell();
}

function tell() {  // the words beside the pointer
  $("tip").hidden = !focus || drag?.moved;
  if ($("tip").hidden) return;
  const run = runs[focus.side], {lane} = focus.item, curve = run.memories[lane.device];
  const held = curve?.length ? `\n${run.memory.unit}: ${amountText(amountAt(curve, focus.time), run)}` : "";
  $("tip").textContent = describe(focus.item, run) + (focus.item.causes ? "" : held);
  const {offsetWidth, offsetHeight} = $("tip"), x = clamp(run.picture.x(focus.time) + 14, 0, canvas.clientWidth - offsetWidth);
  const [first] = run.lanes, under = lane.top - first.top < 240 ? first : lane;  // above the run, where it hides no box of it
  $("tip").style.transform = `translate(${x}px, ${under.top - offsetHeight - 8}px)`;
}

function found(place) {  // {side, item, time} of a chosen {side, lane, index}, or null
  const item = place && runs[place.side]?.lanes[place.lane]?.work[place.index];
  return item ? {side: place.side, item, time: item.start} : null;
}

function choose(place) {
  chosen = place;
  const asked = found(place);
  if (!asked) chosen = null;
  $("said").textContent = asked ? `${asked.item.lane.name}: ${describe(asked.item, runs[asked.side])}` : "";
}

function stepTo({lanes = 0, boxes = 0}) {  // the box that the arrow keys choose: the next one, or the one below at that time
  if (!found(chosen)) choose({side: 0, lane: 0, index: 0});
  else if (boxes) choose({...chosen, index: clamp(chosen.index + boxes, 0, runs[chosen.side].lanes[chosen.lane].work.length - 1)});
  else {
    const {item} = found(chosen), all = runs.flatMap((run, side) => run.lanes.map((_, lane) => ({side, lane})));
    const i = all.findIndex(({side, lane}) => side === chosen.side && lane === chosen.lane) + lanes;
    if (!all[i]) return;
    const {work} = runs[all[i].side].lanes[all[i].lane];
    choose({...all[i], index: clamp(lastAt(work, item.start), 0, work.length - 1)});
  }
  draw();
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

async function grab({side, item}, event) {
  const picked = drag = {item, side, x: event.offsetX, moved: false, whole: whole(), was: {...state}, run: runs[0], to: item.action};
  canvas.setPointerCapture(event.pointerId);
  picked.order = await lines();
}

function dragTo(event) {
  if (!drag.moved && Math.abs(event.offsetX - drag.x) < 4) return;
  const {picture} = drag.run, {lane, action} = drag.item, time = picture.from + (event.offsetX - picture.left) / picture.scale;
  Object.assign(drag, {moved: true, nowX: event.offsetX, nowY: event.offsetY});
  $("cursor").hidden = true;
  focus = null;
  tell();
  const to = lane.work.filter(({action: each, start, end}) => each != null && each !== action && (start + end) / 2 < time).length;
  if (drag.order && to !== drag.to) {
    drag.to = to;
    keep(moved(drag.order, lane.device, action, to));
  }
  drawSoon();
}

function drop(undo = false) {
  const {was, to, item, moved: hasMoved} = drag;
  drag = null;
  canvas.classList.remove("grabbing");
  if (hasMoved && (undo || to === item.action)) update({s: was.s, own: was.own, K: was.K, M: was.M});
  draw();
}

function drawGhost(pen, tone) {  // the box under the pointer
  const {picture} = drag.run, {item, x, nowX, nowY} = drag, [part] = item.parts, fill = picture.fillOf(part.kind, part.place);
  const width = (item.end - item.start) * picture.scale - 1, left = nowX - (x - picture.x(item.start)), {box} = item.lane;
  const top = clamp(nowY - box / 2, item.lane.top - box / 2, item.lane.top + box / 2);
  pen.box(left, top, width, box, fill.box, Math.min(3, box / 6));
  pen.line([[left, top], [left + width, top], [left + width, top + box], [left, top + box], [left, top]], tone.ink, 2);
  pen.words(part.name, left + width / 2, top + box / 2 + 1, fill.text, Math.min(12, box - 4), "center", 600);
}

async function moveChosen(by) {  // Alt and an arrow
  const asked = found(chosen);
  if (!asked || !mayMove(asked.side, asked.item)) return;
  const order = await lines(), {lane, action} = asked.item, to = clamp(action + by, 0, order[lane.device].length - 1);
  if (to === action) return;
  chosen = {...chosen, index: clamp(chosen.index + by, 0, lane.work.length - 1)};
  keep(moved(order, lane.device, action, to));
}

function moveTyped(by) {  // the word at the cursor of the text
  const area = fields("own"), {value, selectionStart: at} = area, begin = value.lastIndexOf("\n", at - 1) + 1;
  const device = value.slice(0, begin).split("\n").length - 1, line = value.slice(begin).split("\n")[0];
  const words = [...line.matchAll(/\S+/g)], from = words.findIndex(word => at - begin <= word.index + word[0].length), to = from + by;
  if (from < 0 || to < 0 || to >= words.length) return;
  keep(moved(value.split("\n").map(each => each.trim().split(/\s+/)), device, from, to));
  select(device, to);
}

// ---- time, view ----

function playUntil(time) {
  now = time;
  if (showMessages) draw(); else showNow();
}

function showNow() {  // what is still to come is pale
  $("future").hidden = $("now").hidden = now === null;
  if (now !== null) {
    const {picture} = runs[0], x = picture.x(clamp(now, picture.from, picture.to)), top = runs[0].lanes[0].top - 4;
    Object.assign($("future").style, {left: `${x}px`, top: `${top}px`, right: 0, bottom: 0});
    $("now").textContent = text(Math.floor(now / runs[0].step) * runs[0].step);
    $("now").style.left = `${x}px`;
  }
}

function play(on = !playing) {
  playing = on;
  $("play").textContent = on ? "\u275A\u275A Pause" : "\u25B6\uFE0E Play";
  if (!on) return;
  const speed = Math.max(whole() / 12, 2);  // all in less than 12 seconds
  let last = performance.now();
  if (now === null || now >= whole()) playUntil(0);
  requestAnimationFrame(function frame(time) {
    if (!playing) return;
    const next = now + clamp(time - last, 0, 100) / 1000 * speed;
    last = time;
    if (next >= whole()) {
      play(false);
      return playUntil(null);
    }
    playUntil(next);
    requestAnimationFrame(frame);
  });
}

function step(count) {
  const size = runs[0].step;
  playUntil(clamp(Math.round((now ?? whole()) / size) * size + count * size, 0, whole()));
}

function zoom(factor, middle = null) {
  const {from, to} = view || {from: 0, to: whole()}, length = (to - from) * factor, all = whole();
  const at = middle ?? now ?? (from + to) / 2, share = (at - from) / (to - from), begin = clamp(at - share * length, 0, Math.max(0, all - length));
  view = length >= all * 0.999 ? null : {from: begin, to: begin + Math.max(length, 4 * runs[0].step)};
  draw();
}

function pan(by) {
  const {from, to} = view, begin = clamp(from + by, 0, whole() - (to - from));
  view = {from: begin, to: begin + to - from};
  drawSoon();
}

function press(id, on) {
  $(id).setAttribute("aria-pressed", on);
  draw();
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
    $("found").textContent = `The search stumbled: ${error.message}`;
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
  if (isShorter) return `Yes: one takes ${duration(makespan, run)}, ${text(run.makespan - makespan)} fewer. ${rest}`;
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
  const name = `minipipe-${state.s}-${state.K}x${state.M}`, width = Math.max(700, canvas.clientWidth);
  const seen = view;
  view = null;
  const height = place(width).height + 58;
  if (as === "svg") {
    const pen = new SvgPen();
    drawFrame(pen, width, height);
    pen.parts.push(`<g transform="translate(0 44)">`);
    paint(pen, place(width), tone());
    pen.parts.push("</g>");
    download(`${name}.svg`, "image/svg+xml", pen.file(width, height, canvas.getAttribute("aria-label")));
  } else if (as === "png") {
    const picture = element("canvas"), context = picture.getContext("2d"), pen = new CanvasPen(context);
    Object.assign(picture, {width: 2 * width, height: 2 * height});
    context.scale(2, 2);
    drawFrame(pen, width, height);
    context.translate(0, 44);
    paint(pen, place(width), tone());
    picture.toBlob(blob => download(`${name}.png`, "image/png", blob));
  } else {
    const answer = await engine.ask("export", {side: 0, as});
    if (answer.refused) say(answer.refused); else download(answer.name, answer.type, answer.text);
  }
  view = seen;
  draw();
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
fields("own").onkeydown = event => {
  if (!event.altKey || !["ArrowLeft", "ArrowRight"].includes(event.key)) return;
  event.preventDefault();
  moveTyped(event.key === "ArrowLeft" ? -1 : 1);
};

async function edit() {
  if (state.s === "own") return update({s: before});
  keep((await lines()).map(words => words.join(" ")).join("\n"));
  fields("own").focus({preventScroll: true});
  $("own").scrollIntoView({block: "nearest"});
}

$("edit").onclick = edit;
$("play").onclick = () => play();
$("path").onclick = () => press("path", showPath = !showPath);
$("messages").onclick = () => press("messages", showMessages = !showMessages);
$("in").onclick = () => zoom(0.5);
$("out").onclick = () => zoom(2);
$("theme").onclick = () => update({theme: root.dataset.theme === "dark" ? "light" : "dark"}, {runs: false});
$("search").onclick = search;
$("show").onclick = () => keep(better.trim());
$("unprofile").onclick = () => takeProfile(null);
$("profile").onchange = ({target}) => target.files[0] && takeProfile(target.files[0]);
$("save").onclick = ({target}) => target.dataset.as && save(target.dataset.as);
$("link").onclick = async () => {
  await navigator.clipboard?.writeText(location.href).catch(() => {});
  $("link").textContent = "Copied";
  setTimeout(() => $("link").textContent = "Copy link", 1500);
};

document.ondragover = event => { event.preventDefault(); document.body.classList.add("dropping"); };
document.ondragleave = event => { if (!event.relatedTarget) document.body.classList.remove("dropping"); };
document.ondrop = event => {
  event.preventDefault();
  document.body.classList.remove("dropping");
  if (event.dataTransfer.files[0]) takeProfile(event.dataTransfer.files[0]);
};

canvas.onpointerdown = event => {
  const asked = itemAt(event.offsetX, event.offsetY);
  if (event.pointerType === "touch") ask(asked);  // a finger does not hover
  if (asked && mayMove(asked.side, asked.item)) grab(asked, event);
  else if (view) {
    canvas.setPointerCapture(event.pointerId);
    drag = {pan: true, x: event.offsetX, whole: 0};
  }
};
canvas.onpointermove = event => {
  if (drag?.pan) {
    pan((drag.x - event.offsetX) / runs[0].picture.scale);
    drag.x = event.offsetX;
    return;
  }
  if (drag) return dragTo(event);
  const asked = itemAt(event.offsetX, event.offsetY);
  canvas.classList.toggle("grab", Boolean(asked && mayMove(asked.side, asked.item)));
  $("cursor").hidden = !asked;
  if (asked) $("cursor").style.transform = `translateX(${event.offsetX}px)`;
  ask(asked);
};
canvas.onpointerup = event => {
  if (drag && !drag.pan) {
    const {side, item, moved: hasMoved} = drag;
    drop();
    if (hasMoved) return;
    const lane = runs[side].lanes.indexOf(item.lane);
    choose({side, lane, index: item.lane.work.indexOf(item)});
    draw();
  }
  drag = null;
};
canvas.onpointercancel = () => { if (drag && !drag.pan) drop(true); drag = null; };
canvas.onpointerleave = ({pointerType}) => {
  if (drag || pointerType === "touch") return;
  $("cursor").hidden = true;
  ask(null);
};
canvas.onfocus = () => { if (canvas.matches(":focus-visible")) stepTo({}); };
canvas.onblur = () => { choose(null); draw(); };
canvas.addEventListener("wheel", event => {
  if (!event.ctrlKey) return;
  event.preventDefault();
  const {picture} = runs[0];
  zoom(event.deltaY > 0 ? 1.25 : 0.8, picture.from + (event.offsetX - picture.left) / picture.scale);
}, {passive: false});

const KEYS = {
  " ": () => play(), "p": () => $("path").click(), "m": () => $("messages").click(), "d": () => $("theme").click(),
  "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), "0": () => zoom(Infinity),
  "Home": () => playUntil(0), "End": () => playUntil(null),
};
document.onkeydown = event => {
  const {target, key, altKey, shiftKey} = event, sign = {ArrowLeft: -1, ArrowRight: 1, ArrowUp: -1, ArrowDown: 1}[key];
  if (event.ctrlKey || event.metaKey || target.matches("input, select, textarea") || (key === " " && target.matches("button, summary"))) return;
  let act = altKey ? null : KEYS[key];
  if (key === "Escape") act = () => {
    if (drag) drop(true); else { play(false); playUntil(null); choose(null); view = null; draw(); }
  };
  if (sign && target === canvas) act = altKey ? () => moveChosen(sign) : () => stepTo(/Up|Down/.test(key) ? {lanes: sign} : {boxes: sign});
  else if (/Left|Right/.test(key) && !altKey) act = () => step(sign * (shiftKey ? 10 : 1));
  if (!act) return;
  event.preventDefault();
  act();
};

onhashchange = () => update({}, {note: take()});
matchMedia("(prefers-color-scheme: dark)").onchange = fill;
new ResizeObserver(() => { draw(); fitBars(); }).observe($("stage"));
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
