// What a page of runs shows: their pictures on one time axis, a legend and where the ticks go; and what pointer and keys do.
// The playground and the page of `trace.to_html()` share it. `also` is what the playground adds.
import {CanvasPen, amountAt, amountText, clamp, describe, duration, lastAt} from "./paint.js";

const $ = id => document.getElementById(id);
const canvas = $("picture"), root = document.documentElement;
const also = {
  theme: () => "",          // "light", "dark", or "" for the system's
  describe: null,           // ({side, item}) => a promise of {words, blame}, for a gap that has none
  mayMove: () => false,     // (side, item) => whether a box can be moved
  grab: null,               // ({side, item}) => {whole, to(event), drop(undo)}, which moves a box with the pointer
  moveChosen: () => {},     // (by) => move the chosen box by -1 or 1 place in the order of its device
};

let runs = [];
let view = null, now = null, playing = false, showPath = false, showMessages = false;  // view: {from, to}, or null for all
let focus = null, chosen = null, cause = null, drag = null;  // {side, item, time}; {side, lane, index}; [run, name]; {x, moved, to, drop}

function element(tag, words = "", more = {}) {
  return Object.assign(document.createElement(tag), {textContent: words}, more);
}

const percent = share => share === null ? "-" : `${100 * share < 10 ? +(100 * share).toFixed(1) : Math.round(100 * share)} %`;
const peakOf = ({memory}) => Math.max(0, ...memory.peaks);

function showRuns(shown) {  // runs as `readRun` gives them
  runs = shown.filter(({lanes}) => lanes.length);
  if (view && view.to > whole()) view = null;
  focus = null;
  choose(chosen);
  showLegend();
  showBars();
  draw();
}

function showTheme() {
  root.dataset.theme = also.theme() || (system.matches ? "dark" : "light");
  draw();
}

// ---- around the picture ----

function kindsShown() {  // [fill, words] of each kind of work in the runs
  const found = {};
  for (const run of runs) for (const kind of new Set(run.spans.kind))
    found[kind] ??= [run.picture.fillOf(kind, 0), `${kind.length === 1 ? `${kind} ` : ""}${run.kinds[kind][2]}`];
  const darker = runs.find(run => run.most_stages > 1);
  if (darker) {
    const [kind] = darker.spans.kind;
    found.darker = [darker.picture.fillOf(kind, darker.most_stages - 1), "darker: a further stage of the device"];
  }
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
      const title = `${name}: ${duration(value, run)}, ${percent(value / all)}`;
      const button = element("button", `${name} ${run.text(value)}`, {title, type: "button"});
      button.setAttribute("aria-label", `${run.title}, ${title}`);
      button.style.flexGrow = value;
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
}

// ---- the picture ----

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
    picture.drawAxis(run.axis, run.text, run.step, run.makespan);
    drawEnd(run, longest, tone);
    drawMemories(run, tone, right);
    if (pen.context) pen.context.restore();
    drawNames(run, left, tone);
  }
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
  const {picture, lanes, axis, text} = run, {pen} = picture, x = picture.x(run.makespan), top = lanes[0].top - 4;
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
  if (!item.causes || item.blame || !also.describe) return;
  Object.assign(item, await also.describe({side, item}));
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

// ---- time, view ----

function playUntil(time) {  // null: the whole run
  now = time;
  if (showMessages) draw(); else showNow();
}

function showNow() {  // what is still to come is pale
  $("future").hidden = $("now").hidden = now === null;
  Object.assign($("slider"), {max: whole(), value: now ?? whole()});
  if (now !== null) {
    const {picture} = runs[0], x = picture.x(clamp(now, picture.from, picture.to)), top = runs[0].lanes[0].top - 4;
    Object.assign($("future").style, {left: `${x}px`, top: `${top}px`, right: 0, bottom: 0});
    $("now").textContent = runs[0].text(Math.floor(now / runs[0].step + 1e-9) * runs[0].step);
    $("now").style.left = `${x}px`;
  }
}

function play(on = !playing) {
  playing = on;
  $("play").textContent = on ? "\u275A\u275A Pause" : "\u25B6\uFE0E Play";
  if (!on) return;
  const speed = Math.max(whole() / 12, 2 * runs[0].step);  // all in less than 12 seconds
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

function zoom(factor) {
  const {from, to} = view || {from: 0, to: whole()}, length = (to - from) * factor, all = whole();
  const at = now ?? (from + to) / 2, share = (at - from) / (to - from), begin = clamp(at - share * length, 0, Math.max(0, all - length));
  view = length >= all * 0.999 ? null : {from: begin, to: begin + Math.max(length, 4 * runs[0].step)};
  draw();
}

function pan(wanted) {  // the tick at the left
  const {from, to} = view, begin = clamp(wanted, 0, whole() - (to - from));
  view = {from: begin, to: begin + to - from};
  drawSoon();
}

function unzoomed(act) {  // do something while all is in view
  const seen = view;
  view = null;
  act();
  view = seen;
  draw();
}

function press(id, on) {
  $(id).setAttribute("aria-pressed", on);
  draw();
}

// ---- what happens ----

$("play").onclick = () => play();
$("slider").oninput = ({target: {value}}) => playUntil(+value < whole() ? Math.round(value / runs[0].step) * runs[0].step : null);
$("path").onclick = () => press("path", showPath = !showPath);
$("messages").onclick = () => press("messages", showMessages = !showMessages);
$("in").onclick = () => zoom(0.5);
$("out").onclick = () => zoom(2);

canvas.onpointerdown = event => {
  const asked = itemAt(event.offsetX, event.offsetY), x = event.offsetX, from = view?.from;
  if (event.pointerType === "touch") ask(asked);  // a finger does not hover
  if (asked && also.mayMove(asked.side, asked.item)) drag = also.grab(asked);
  else if (view) drag = {to: ({offsetX}) => pan(from + (x - offsetX) / runs[0].picture.scale)};
  if (!drag) return;
  Object.assign(drag, {x, moved: false});
  canvas.setPointerCapture(event.pointerId);
};
canvas.onpointermove = event => {
  if (!drag) {
    const asked = itemAt(event.offsetX, event.offsetY);
    canvas.classList.toggle("grab", Boolean(asked && also.mayMove(asked.side, asked.item)));
    return ask(asked);
  }
  if (!drag.moved && Math.abs(event.offsetX - drag.x) < 4) return;
  drag.moved = true;
  ask(null);
  drag.to(event);
};
function drop(undo = false) {
  const {moved, drop} = drag ?? {};
  drag = null;
  if (moved && drop) drop(undo);
  draw();
  return moved;
}
canvas.onpointerup = event => {
  const asked = itemAt(event.offsetX, event.offsetY);
  if (drop() || !asked || asked.item.causes) return;
  const {side, item} = asked;
  choose({side, lane: runs[side].lanes.indexOf(item.lane), index: item.lane.work.indexOf(item)});
  draw();
};
canvas.onpointercancel = () => drop(true);
canvas.onpointerleave = ({pointerType}) => { if (!drag && pointerType !== "touch") ask(null); };
canvas.onfocus = () => { if (canvas.matches(":focus-visible")) stepTo({}); };
canvas.onblur = () => { choose(null); draw(); };

const KEYS = {
  " ": () => play(), "p": () => $("path").click(), "m": () => $("messages").click(),
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
  if (sign && target === canvas) act = altKey ? () => also.moveChosen(sign) : () => stepTo(/Up|Down/.test(key) ? {lanes: sign} : {boxes: sign});
  else if (/Left|Right/.test(key) && !altKey) act = () => step(sign * (shiftKey ? 10 : 1));
  if (!act) return;
  event.preventDefault();
  act();
};

const system = matchMedia("(prefers-color-scheme: dark)");
system.onchange = showTheme;
new ResizeObserver(draw).observe($("stage"));

export {$, KEYS, also, canvas, choose, chosen, draw, element, found, kindsShown, paint, peakOf, percent, place, root, runs, showRuns, showTheme,
        tone, unzoomed, whole};
