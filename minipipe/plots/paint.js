// The picture of a run: lanes of boxes, marks, messages, memory. The playground and the page of `trace.to_html()` share it.
// A pen draws for the screen (`CanvasPen`) or into a file (`SvgPen`); `Picture` knows where everything is.

const FONT = "Inter, system-ui, sans-serif";
const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

class CanvasPen {
  constructor(context) {
    this.context = context;
    this.alpha = 1;
  }

  box(left, top, width, height, fill, radius = 0) {
    const {context} = this;
    context.globalAlpha = this.alpha;
    context.fillStyle = fill;
    if (radius < 1) return context.fillRect(left, top, width, height);  // twice as fast
    context.beginPath();
    context.roundRect(left, top, width, height, radius);
    context.fill();
  }

  shape(points, fill) {
    this.trace(points);
    this.context.fillStyle = fill;
    this.context.fill();
  }

  line(points, stroke, thick = 1, dash = []) {
    this.trace(points);
    Object.assign(this.context, {strokeStyle: stroke, lineWidth: thick, lineJoin: "round"});
    this.context.setLineDash(dash);
    this.context.stroke();
    this.context.setLineDash([]);
  }

  trace(points) {
    this.context.globalAlpha = this.alpha;
    this.context.beginPath();
    for (const [left, top] of points) this.context.lineTo(left, top);
  }

  words(text, left, middle, fill, size = 11, align = "center", weight = 400) {
    const font = `${weight} ${size}px ${FONT}`;
    if (this.font !== font) this.context.font = this.font = font;
    Object.assign(this.context, {globalAlpha: this.alpha, fillStyle: fill, textAlign: align, textBaseline: "middle"});
    this.context.fillText(text, left, middle);
  }
}

class SvgPen {
  constructor() {
    this.parts = [];
    this.alpha = 1;
  }

  add(tag, attributes, inside = "") {
    if (this.alpha < 1) attributes.opacity = this.alpha;
    const written = Object.entries(attributes).map(([name, value]) =>
      `${name}="${escaped(typeof value === "number" ? +value.toFixed(2) : value)}"`);
    this.parts.push(`<${tag} ${written.join(" ")}>${escaped(inside)}</${tag}>`);
  }

  box(left, top, width, height, fill, radius = 0) {
    this.add("rect", {x: left, y: top, width: Math.max(0, width), height, fill, ...(radius < 1 ? {} : {rx: radius})});
  }

  shape(points, fill) {
    this.add("polygon", {points: written(points), fill});
  }

  line(points, stroke, thick = 1, dash = []) {
    const more = dash.length ? {"stroke-dasharray": dash.join(" ")} : {};
    this.add("polyline", {points: written(points), fill: "none", stroke, "stroke-width": thick, "stroke-linejoin": "round", ...more});
  }

  words(text, left, middle, fill, size = 11, align = "center", weight = 400) {
    const anchor = {left: "start", center: "middle", right: "end"}[align];
    this.add("text", {x: left, y: middle, fill, "font-size": size, "text-anchor": anchor, "font-weight": weight,
                      "dominant-baseline": "central"}, text);
  }

  file(width, height, title) {
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" ` +
      `font-family="${FONT}"><title>${escaped(title)}</title>\n${this.parts.join("\n")}\n</svg>\n`;
  }
}

const escaped = text => String(text).replace(/[&<>"]/g, letter => `&#${letter.charCodeAt()};`);
const written = points => points.map(([left, top]) => `${+left.toFixed(2)},${+top.toFixed(2)}`).join(" ");

// ---- colours ----

const channels = colour => [1, 3, 5].map(i => parseInt(colour.slice(i, i + 2), 16));
const mixed = (one, other, share) => one.map((value, i) => Math.round((1 - share) * value + share * other[i]));

function inkOn(rgb) {  // black or white, whichever stands out more
  const [r, g, b] = rgb.map(value => value <= 10 ? value / 3295 : ((value / 255 + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000" : "#fff";  // WCAG 2: as far from black as from white
}

// ---- a run, so arranged that a binary search finds what is at a tick ----

function lastAt(list, time) {  // the place of the last item that has started at `time`, or -1
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle].start <= time) low = middle + 1; else high = middle;
  }
  return low - 1;
}

const amountAt = (memory, time) => (memory[lastAt(memory, time)] || {amount: 0}).amount;

// Give a run, as `picture` in plots/html.py writes it, what drawing needs; all lists are by start.
// lanes: [{device, name, work, marks, idle, beside, last}]. beside: it is not the lane that computes; last: the device's memory
//   is below it. Of work and marks, which take no time: {start, end, label, exchange, parts}; of idle: {i, start, end, words, ...}.
// items: the work of each row of `spans`; memories: [{start, amount}] of each device; arrows: messages; steps: the critical path.
function readRun(run) {
  const {spans, idle, memory, messages, path, rows} = run;
  run.lanes = rows.map(([device, name], i) => ({
    device, name, work: [], marks: [], idle: [], beside: i > 0 && rows[i - 1][0] === device,
    last: i + 1 === rows.length || rows[i + 1][0] !== device,
  }));
  run.items = spans.row.map((number, i) => {
    const lane = run.lanes[number], at = column => spans[column][i], [kind, stage, microbatch] = ["kind", "stage", "microbatch"].map(at);
    const part = {kind, stage, microbatch, copy: at("copy"), place: at("place"), name: at("label") ?? `${stage}${kind}${microbatch}`};
    if (at("part")[0] > 0) {  // a further part of an overlap
      const item = lane.work.at(-1);
      item.parts.push(part);
      return item;
    }
    const item = {lane, label: at("label") ?? "", parts: [part], action: spans.action?.[i]};
    for (const column of ["start", "end", "exchange"]) item[column] = at(column);
    lane[item.end > item.start ? "work" : "marks"].push(item);
    return item;
  });
  idle.row.forEach((number, i) => {
    const gap = {i, lane: run.lanes[number]};
    for (const column of ["start", "end", "causes", "words", "blame"]) gap[column] = idle[column][i];
    gap.lane.idle.push(gap);
  });
  run.memories = memory.ticks.map((ticks, device) => ticks.map((start, i) => ({start, amount: memory.amounts[device][i]})));
  run.arrows = messages.label.map((label, i) => ({
    label, source: messages.source[i], to: messages.to[i], start: messages.sent[i], end: messages.arrived[i],
  })).filter(({end}) => end !== null);
  run.steps = path.source.map((source, i) => [source, path.to[i], path.start[i], path.end[i]]);
  run.hasCopies = spans.copy.some(copy => copy > 0);
  const digits = clamp(3 - Math.floor(Math.log10(run.step)), 0, 20);
  run.text = time => String(+time.toFixed(digits));
  run.picture = new Picture({rows: run.lanes, kinds: run.kinds, nPlaces: run.most_stages, end: run.makespan});
  return run;
}

function exactly(time, {text}) {  // a decimal, or the fraction that it has been
  const isWhole = value => Math.abs(value - Math.round(value)) < 1e-9;
  const below = isWhole(1000 * time) ? 0 : Array.from({length: 60}, (_, i) => i + 3).find(each => isWhole(time * each) && time * each > 0.5);
  return below ? `${Math.round(time * below)}/${below}` : text(time);
}

const duration = (time, run) => `${exactly(time, run)} ${run.unit}${time === 1 ? "" : "s"}`;

function amountText(amount, {memory, text}) {
  if (memory.unit !== "bytes") return text(amount);
  const power = clamp(Math.floor(Math.log2(amount || 1) / 10), 0, 4);
  return `${+(amount / 1024 ** power).toPrecision(3)} ${["B", "KiB", "MiB", "GiB", "TiB"][power]}`;
}

function describe(item, run) {  // in words what a box is, and when; of a gap, why
  if (!item.parts) return item.words ?? "...";
  const names = item.parts.map(({kind, stage, microbatch, copy}) => {
    const name = kind ? run.kinds[kind][2] : "work", of = {U: ` after micro-batch ${microbatch}`};
    if (microbatch === null) return name;
    return `${name}${of[kind] ?? ` of micro-batch ${microbatch}`} on stage ${stage}${run.hasCopies ? ` of replica ${copy}` : ""}`;
  });
  const when = item.end === item.start ? `at ${run.unit} ${exactly(item.start, run)}`
    : `${run.unit} ${exactly(item.start, run)} to ${exactly(item.end, run)} (${duration(item.end - item.start, run)})`;
  return `${item.parts.map(({name}) => name).join("&")}, ${names.join(" and, at once, ")}\n${when}`;
}

// ---- the picture ----

const WITHOUT_NUMBER = new Set(["A", "S", "U", "G", "X"]);  // kinds of work that is not of one micro-batch

class Picture {
  // rows: the lanes of a run; kinds: {kind: [bright, dark, name]}; nPlaces: the most stages of a device; end: the last tick.
  constructor({rows, kinds, nPlaces, end}) {
    Object.assign(this, {rows, kinds, nPlaces, end, fills: new Map()});
  }

  fillOf(kind, place) {  // the first stage of a device has the kind's colour, the last one its dark one
    const key = `${kind} ${place}`;
    if (!this.fills.has(key)) {
      const [bright, dark] = this.kinds[kind].map(channels);
      const rgb = mixed(bright, dark, this.nPlaces > 1 ? place / (this.nPlaces - 1) : 0);
      this.fills.set(key, {box: `rgb(${rgb})`, text: inkOn(rgb), rgb});
    }
    return this.fills.get(key);
  }

  // Put the rows below `top`: the box of a device, then of its other lanes, then its memory, if strips are not 0.
  place(top, {box, beside, strip, gap, apart = 3}) {
    for (const row of this.rows) {
      Object.assign(row, {top, box: row.beside ? beside : box});
      top += row.box + (row.last ? strip + gap : apart);
    }
    Object.assign(this, {beside, bottom: top});
  }

  // Look at the ticks `from` to `to`, between the pixels `left` and `right`; `tone`: {name: colour} of all that is no work.
  look(pen, tone, {left, right, from, to}) {
    Object.assign(this, {pen, tone, left, right, from, to, scale: (right - left) / (to - from)});
    this.x = time => left + (time - from) * this.scale;
  }

  *visible(list) {
    for (let i = Math.max(0, lastAt(list, this.from)); i < list.length && list[i].start <= this.to; i++) yield list[i];
  }

  // ---- boxes ----

  boxOf({start, end, parts, exchange}, row) {  // two parts that overlap share the height, as they share the time
    const box = exchange ? this.beside : row.box, top = row.top + (row.box - box) / 2;  // lower, where a device waits for it
    const left = this.x(start), room = this.x(end) - left, width = Math.max(0.6, room > 4 ? room - 1 : room);
    const height = box / parts.length, size = Math.min(12, height - 2);
    return {left, top, width, height, size, fits: Math.floor((width - 1) / (0.65 * size))};  // characters
  }

  wordsOf({kind, stage, microbatch}) {  // of an action, the longest first
    const short = [`${kind}${microbatch}`, `${microbatch}`];
    if (this.onlyNumbers) return [WITHOUT_NUMBER.has(kind) ? "" : short[1]];
    return this.nPlaces > 1 ? [`${stage}${short[0]}`, ...short] : short;
  }

  lengthOfWords(items, row) {  // which of the words of their actions all boxes of a row have room for; none: 3
    let found = 0;
    for (const item of items) {
      const {fits} = this.boxOf(item, row);
      for (const part of item.parts) {
        if (part.microbatch === null) continue;
        const words = this.wordsOf(part);
        while (found < 3 && !(found < words.length && words[found].length <= fits)) found++;
      }
      if (found === 3) break;
    }
    return found;
  }

  drawLane(row, {until = this.end, alphaOf = null, length = null} = {}) {
    const {pen} = this, items = [...this.visible(row.work)];
    pen.alpha = 1;
    pen.box(this.x(0), row.top, this.x(until) - this.x(0), row.box, this.tone.track, Math.min(3, row.box / 6));
    const covered = items.reduce((sum, {start, end}) => sum + end - start, 0) * this.scale;
    if (items.length && covered < 2 * items.length) this.drawMeans(row, items, alphaOf);
    else {
      length ??= this.lengthOfWords(items, row);
      for (const item of items) {
        pen.alpha = alphaOf ? alphaOf(item) : 1;
        this.drawWork(item, row, length);
      }
    }
    for (const item of this.visible(row.marks)) {
      pen.alpha = alphaOf ? alphaOf(item) : 1;
      this.drawMark(item, row);
    }
    pen.alpha = 1;
  }

  drawWork(item, row, length) {
    const {left, top, width, height, size, fits} = this.boxOf(item, row), {label, parts} = item;
    const radius = Math.min(3, width / 6, height / 6);
    parts.forEach((part, i) => {
      const fill = this.fillOf(part.kind, part.place);
      this.pen.box(left, top + i * height, width, height, fill.box, radius);
      const short = label.length <= fits ? label : `${label.slice(0, fits - 1)}\u2026`;
      const words = part.microbatch !== null ? this.wordsOf(part)[length] : this.onlyNumbers ? "" : short;
      if (words && fits >= 1) this.pen.words(words, left + width / 2, top + (i + 0.5) * height + 1, fill.text, size);
    });
  }

  // Boxes narrower than 2 pixels: each pixel has the mean colour of those nearby, or stripes would show what is not there.
  drawMeans(row, items, alphaOf) {
    const first = Math.floor(this.left), n = Math.ceil(this.right) - first, track = channels(this.tone.track.trim());
    const sums = Array.from({length: n}, () => [0, 0, 0, 0]);  // red, green, blue and the share of the pixel
    for (const item of items) {
      const [start, end] = [this.x(item.start) - first, this.x(item.end) - first], alpha = alphaOf ? alphaOf(item) : 1;
      const {rgb} = this.fillOf(item.parts[0].kind, item.parts[0].place);
      for (let i = Math.max(0, Math.floor(start)); i < Math.min(n, end); i++) {
        const share = alpha * (Math.min(i + 1, end) - Math.max(i, start));
        rgb.forEach((value, j) => sums[i][j] += share * value);
        sums[i][3] += share;
      }
    }
    const near = [0, 0, 0, 0], add = (i, sign) => sums[i]?.forEach((value, j) => near[j] += sign * value);
    for (let i = 0; i < 5; i++) add(i, 1);
    const colours = sums.map(([, , , share], i) => {  // `near` is the sum of pixels i - 5 to i + 5
      add(i + 5, 1);
      add(i - 6, -1);
      return share && `rgb(${[0, 1, 2].map(j => Math.round(share * near[j] / near[3] + (1 - share) * track[j]))})`;
    });
    for (let i = 0, j; i < n; i = j) {
      for (j = i + 1; j < n && colours[j] === colours[i]; j++);
      if (colours[i]) this.pen.box(first + i, row.top, j - i, row.box, colours[i]);
    }
  }

  drawMark({start, parts}, {top, box}) {
    const left = this.x(start), middle = top + box - 6, corners = [[0, -6], [6, 0], [0, 6], [-6, 0], [0, -6]];
    const points = corners.map(([dx, dy]) => [left + dx, middle + dy]);
    this.pen.shape(points, this.fillOf(parts[0].kind, parts[0].place).box);
    this.pen.line(points, this.tone.ink, 1);
  }

  frame({start, end}, {top, box}, stroke, thick = 2) {
    const [left, right] = [this.x(start) - 1, Math.max(this.x(start) + 1, this.x(end))];
    this.pen.line([[left, top - 1], [right, top - 1], [right, top + box + 1], [left, top + box + 1], [left, top - 1]], stroke, thick);
  }

  // ---- axis, memory ----

  drawAxis(middle, text, step, last = null) {  // a quarter, a half, 1, 2, 5, 10, 20, ...; no number in the way of the `last` one
    let unit = step, i = 0;
    while (unit * this.scale < 46) unit *= unit === 0.25 || unit === 0.5 ? 2 : [2, 2.5, 2][i++ % 3];
    for (let i = Math.ceil(this.from / unit); i * unit <= this.to; i++) {
      if (last !== null && Math.abs(this.x(i * unit) - this.x(last)) < 8 + 3.5 * (text(i * unit) + text(last)).length) continue;
      this.pen.words(text(i * unit), this.x(i * unit), middle, this.tone.soft);
    }
  }

  // The steps of `memory` up to tick `until`: their height is `height` for `peak`; over a `limit` in alarm.
  drawMemory(memory, bottom, height, peak, {until = this.end, limit = null} = {}) {
    const {pen, tone} = this, items = [...this.visible(memory)];
    const steps = items.map(({start, amount}, i) => [Math.max(start, this.from), i + 1 < items.length ? items[i + 1].start : until, amount]);
    if (height < 6) {  // too low for steps: as heat
      for (const [start, end, amount] of steps) {
        pen.alpha = amount / peak;
        pen.box(this.x(start), bottom - height, this.x(end) - this.x(start), height, limit !== null && amount > limit ? tone.alarm : tone.level);
      }
      pen.alpha = 1;
      return;
    }
    const outline = (from, to, colour) => {  // of what is between two amounts
      const points = steps.flatMap(([start, end, amount]) => [start, end].map(time =>
        [this.x(time), bottom - clamp(amount, from, to) / peak * height]));
      const foot = bottom - from / peak * height;
      if (points.length) pen.shape([[points[0][0], foot], ...points, [points.at(-1)[0], foot]], colour);
    };
    outline(0, limit ?? Infinity, tone.level);
    if (limit === null) return;
    outline(limit, Infinity, tone.alarm);
    const top = bottom - limit / peak * height;
    pen.line([[this.x(this.from), top], [this.x(until), top]], tone.alarm, 1, [4, 3]);
  }

  // ---- lines from row to row ----

  edges(source, to) {  // where a line from one row to another begins and ends: it leaves the words in both free
    const top = row => this.rows[row].top, foot = row => top(row) + this.rows[row].box;
    if (source === to) return [foot(source), foot(to)];
    return source < to ? [foot(source), top(to)] : [top(source), foot(to)];
  }

  drawMessage({source, to, start, end}, now = null, thick = 2) {  // with a dot where it is `now`
    const left = this.x(start), right = this.x(end), [from, target] = this.edges(source, to);
    const angle = Math.atan2(target - from, right - left), reach = 3 + 3 * thick;
    const head = [0.45, -0.45].map(side => [right - reach * Math.cos(angle + side), target - reach * Math.sin(angle + side)]);
    for (const [colour, border] of [[this.tone.paper, 3], [this.tone.ink, 0]]) {  // a border keeps it apart from the boxes below
      this.pen.line([[left, from], [right, target]], colour, thick + border);
      this.pen.line([head[0], [right, target], head[1]], colour, thick + border);
    }
    if (now === null || start === end) return;
    const share = clamp((now - start) / (end - start), 0, 1), [x, y] = [left + share * (right - left), from + share * (target - from)];
    this.pen.shape(Array.from({length: 12}, (_, i) => [x + 5 * Math.cos(i * Math.PI / 6), y + 5 * Math.sin(i * Math.PI / 6)]), this.tone.ink);
  }

  drawPath(path) {  // [from, to, start, end]: a step is work on a row, or a message from one row to another
    for (const [from, to, start, end] of path) {
      if (start > this.to || end < this.from) continue;
      const [first, last] = this.edges(from, to), row = this.rows[from];
      if (from !== to) this.pen.line([[this.x(start), first], [this.x(end), last]], this.tone.ink, 2.5);
      else this.frame({start, end: Math.max(end - 1 / this.scale, start)}, {top: row.top + 1, box: row.box - 2}, this.tone.ink, 2.5);
    }
  }
}

export {CanvasPen, SvgPen, amountAt, amountText, clamp, describe, duration, lastAt, readRun};
