"use strict";
// Runs as the engine computed them: unpacked, in the page that minipipe has for any run, alone or two at the same tick.

const base = document.currentScript.src.replace(/[^/]*$/, "");
const site = {groups: {}, put: (name, groups) => site.groups[name] = groups};
const $ = id => document.getElementById(id);

// ---- data: scripts, because a page from a file may load these, but no other files ----

const loading = {};
const load = name => loading[name] ||= new Promise((done, failed) => {
  const script = document.createElement("script");
  Object.assign(script, {src: `${base}data/${name}.js`, onload: done, onerror: () => failed(Error(`data/${name}.js is missing`))});
  document.head.append(script);
});

async function inflated(text) {
  const bytes = Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

async function runOf(name, size, setting) {
  await load(name);
  if (!window.DecompressionStream) throw Error("This browser is too old: use one of 2023 or later.");
  const {title, label, why, figures, ...data} = (await inflated(site.groups[name][size]))[setting];
  return {title, label, why, figures, data: JSON.stringify(data).replaceAll("<", "\\u003c")};
}

// ---- timelines ----

let following = false;

async function show(runs) {  // [[name, size, setting]]: one below the other, on one time axis, at the same tick
  const axis = Math.max(...runs.map(run => numbersOf(...run)[0]));
  const frames = runs.map(([name]) => {
    const frame = document.createElement("iframe");
    Object.assign(frame, {className: "minipipe", title: `Timeline of ${name}`});
    frame.dataset.axis = axis;
    return frame;
  });
  const sections = frames.map(frame => {
    const section = document.createElement("section");
    section.append(element("p", "Loading the run ..."), frame);
    return section;
  });
  $("runs").replaceChildren(...sections);
  await Promise.all(runs.map(async (run, i) => {
    try {
      const [, pieces] = await Promise.all([load("player"), runOf(...run)]);
      frames[i].srcdoc = site.template.replace(/\{\{(\w+)\}\}/g, (_, piece) => pieces[piece]);
      await new Promise(done => frames[i].onload = done);
    } catch (error) {
      sections[i].replaceChildren(element("p", error.message));
    }
  }));
  for (const frame of frames) frame.addEventListener("tick", ({detail}) => {
    if (following) return;
    following = true;
    for (const other of frames) if (other !== frame) other.contentWindow.goTo(detail);
    following = false;
  });
}

// ---- tables ----

const numbersOf = (name, size, setting) => site.runs[name][size][setting];
const percent = share => `${(100 * share).toFixed(2)} %`;

function element(tag, words, more = {}) {
  return Object.assign(document.createElement(tag), {textContent: words}, more);
}

function tableOf(heads, rows) {  // a row begins with its name, a string or an element
  const table = document.createElement("table"), head = table.createTHead().insertRow(), body = table.createTBody();
  head.append(...heads.map((words, i) => element("th", words, {scope: "col", className: i ? "number" : ""})));
  for (const [name, ...cells] of rows) {
    const first = element("th", "", {scope: "row"});
    first.append(name);
    body.insertRow().append(first, ...cells.map(cell => element("td", cell, {className: "number"})));
  }
  return table;
}

function compare(runs) {
  const each = runs.map(run => numbersOf(...run)), causes = new Set(each.flatMap(numbers => Object.keys(numbers[4])));
  const rows = [["makespan, ticks", ...each.map(([makespan]) => makespan)]];
  site.bubbles.forEach((words, i) => rows.push([`bubble: ${words}`, ...each.map(([, bubbles]) => percent(bubbles[i]))]));
  rows.push(["peak: micro-batches alive, by device", ...each.map(([, , peaks]) => peaks.join(" "))]);
  rows.push(["messages", ...each.map(([, , , count]) => count)]);
  for (const cause of causes) rows.push([`idle ticks: ${cause}`, ...each.map(numbers => numbers[4][cause] || 0)]);
  $("comparison").replaceChildren(tableOf(["", ...runs.map(([name]) => name)], rows));
}

// ---- the chooser: what is chosen stands in the address, so that a lecture can link to it ----

const form = $("chooser");
const FIRST = {schedule: "1f1b", beside: "", K: 4, M: 8, share: 0.5, latency: 0};

function settingOf(name, size) {  // an order without halves has one run for all shares of W
  const {share, latency} = form.elements, whole = `whole ${latency.value}`;
  return whole in site.runs[name][size] ? whole : `${share.value} ${latency.value}`;
}

function choose() {
  const {schedule, beside, K, M} = form.elements, size = `${K.value} ${M.value}`;
  const names = [...new Set([schedule.value, beside.value])].filter(Boolean);
  const there = names.filter(name => site.runs[name][size]);
  const runs = there.map(name => [name, size, settingOf(name, size)]);
  const said = names.filter(name => !there.includes(name)).map(name => `${name} cannot be had in these sizes: ${site.refused[name][size]}.`);
  const whole = runs.filter(([, , setting]) => setting.startsWith("whole")).map(([name]) => name);
  if (whole.length) said.push(`${whole.join(" and ")}: backwards are whole, so W's share of B changes nothing.`);
  $("note").textContent = said.join(" ");
  history.replaceState(null, "", `#${new URLSearchParams(new FormData(form))}`);
  rank(size, names);
  if (runs.length) compare(runs); else $("comparison").replaceChildren();
  return runs.length ? show(runs) : $("runs").replaceChildren();
}

function rank(size, chosen) {
  const names = Object.keys(site.runs).filter(name => site.runs[name][size]);
  const each = names.map(name => [name, numbersOf(name, size, settingOf(name, size))]);
  each.sort(([, [one, , ones]], [, [other, , others]]) => one - other || Math.max(...ones) - Math.max(...others));
  const rows = each.map(([name, [makespan, [bubble], peaks]]) => {
    const button = element("button", name, {type: "button"});
    button.setAttribute("aria-pressed", chosen.includes(name));
    button.onclick = () => {
      form.elements.schedule.value = name;
      choose();
      form.scrollIntoView();
    };
    return [button, makespan, percent(bubble), Math.max(...peaks)];
  });
  $("ranking").replaceChildren(tableOf(["schedule", "makespan", "bubble", "peak"], rows));
}

function fill() {
  const names = Object.keys(site.runs), {K, M, share, latency} = site.settings;
  const options = {schedule: names, beside: ["", ...names], K, M, share, latency};
  for (const [field, values] of Object.entries(options)) for (const value of values)
    form.elements[field].append(element("option", value === "" ? "none" : value, {value}));
  take();
  form.onchange = choose;
  window.onhashchange = () => { take(); choose(); };
}

function take() {  // the choice in the address; what it does not say, or says wrongly, is as at first, or the nearest thing
  const asked = new URLSearchParams(location.hash.slice(1));
  for (const [field, first] of Object.entries(FIRST)) {
    const select = form.elements[field], values = [...select.options].map(option => option.value);
    select.value = [asked.get(field), String(first)].find(value => values.includes(value)) ?? values[0];
  }
}

async function start() {
  if (!$("runs")) return;  // a page without runs
  await load("numbers");
  if (form) {
    fill();
    return choose();
  }
  const run = $("runs").dataset.run.split("|");
  compare([run]);
  return show([run]);
}

const started = start();
