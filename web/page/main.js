// The page: sound in, pictures out.
import { load } from "./deltakwt/index.js";
import { amount, make, palette, percent, seconds } from "./draw.js";
import { Explain } from "./explain.js";
import { Grid } from "./grid.js";
import { Record } from "./record.js";
import { decode } from "./sound.js";
import { Thresholds } from "./thresholds.js";
import { Timeline } from "./timeline.js";

const $ = (id) => document.getElementById(id);
const BLOCK = 4000; // samples that are pushed at once, so that pictures grow while a file is read
const AHEAD = 8; // pushes that the model need not wait for

let spotter;
let record;
let isListening = false;
let job = 0; // number of the newest sound: older ones stop
let player;
let contents; // of the page: contents.json
let whole = null; // the samples and the name of the newest sound, once it has ended

const timeline = new Timeline($("timeline"), (window) => showWindow(window));
const grid = new Grid($("grid"), $("grid-hint"));
const explain = new Explain($("explain"));
const thresholds = new Thresholds($("sliders"), {
  canvas: $("tradeoff"),
  text: $("tradeoff-text"),
  radios: [...document.querySelectorAll("input[name=sites]")],
  onChange: (setting) => chooseSetting(setting, false),
});

function say(text, isError = false) {
  $("status").textContent = text;
  $("status").classList.toggle("error", isError);
}

// ---- models and settings

// The address of the model and the arithmetic of the two lists.
function chosenModel() {
  const { url, float } = contents.models[$("model").selectedIndex];
  $("arithmetic").disabled = !float;
  if (!float) $("arithmetic").value = "float";
  return new URL(float && $("arithmetic").value === "float" ? float : url, location.href);
}

/** Opens that model. Its engine is compiled while `ready` is waited for. */
async function openModel(ready = Promise.resolve()) {
  spotter?.close();
  $("listen").disabled = true;
  spotter = await load(ready.then(chosenModel));
  const { document: about, config, hop, denseMacs } = spotter;
  spotter.on("sound", (block) => record?.addSound(block));
  spotter.on("window", (window) => record && takeWindow(window));
  spotter.on("word", (event) => record && takeWord(event));
  spotter.on("error", (error) => say(error.message, true));
  timeline.about = { labels: about.labels, decision: about.decision, config, hop, denseMacs };
  grid.setup(config);
  const names = [...Object.keys(about.profiles), "dense"];
  $("setting").replaceChildren(...names.map((name) => make("option", { value: name }, name)), make("option", { value: "custom", hidden: true }, "custom"));
  $("setting").value = about.setting;
  thresholds.setup(about, spotter.setting);
  showLegend();
  $("m-dense").textContent = `MACs, last computed; dense: ${amount(denseMacs)}`;
  $("listen").disabled = false;
}

async function changeModel() {
  if (isListening) await stopListening();
  await openModel();
  if (whole) await hear(...whole);
  else if (contents.live) await follow("live");
}

let retry;
function chooseSetting(setting, isProfile) {
  spotter.setting = setting;
  $("setting").value = spotter.setting.name in spotter.document.profiles || spotter.setting.name === "dense" ? spotter.setting.name : "custom";
  if (isProfile) thresholds.setup(spotter.document, spotter.setting);
  clearTimeout(retry);
  if (whole) retry = setTimeout(() => hear(...whole), isProfile ? 0 : 150);
}

function showLegend() {
  const colours = palette();
  const entry = ([name, colour]) => {
    const span = make("span", {}, name);
    span.style.setProperty("--c", colour);
    return span;
  };
  $("legend").replaceChildren(...[["attention", colours.attention], ["MLP", colours.mlp], ["word", colours.word]].map(entry));
}

// ---- sound

/** Starts a new record and returns the number of the job, or 0 if there is a newer one already. What
 * the model still tells of the sound before is not noted. */
async function begin(isLive) {
  const mine = ++job;
  stopPlaying();
  explain.close();
  record = null;
  await spotter.reset();
  if (mine !== job) return 0;
  record = new Record(isLive, spotter.config.stride);
  $("words").replaceChildren(make("li", { className: "empty" }, "No word yet."));
  timeline.show(record, timeline.about);
  grid.show(null);
  $("play").disabled = true;
  return mine;
}

/** Runs a whole sound of 16 kHz, piece by piece, so that the pictures grow. */
async function hear(sound, name) {
  if (isListening) await stopListening();
  whole = [sound, name];
  const mine = await begin(false);
  if (!mine) return;
  const pushed = [];
  for (let at = 0; at < sound.length; at += BLOCK) {
    pushed.push(spotter.push(sound.subarray(at, at + BLOCK)));
    if (pushed.length > AHEAD) await pushed.shift();
    if (mine !== job) return;
  }
  await spotter.flush();
  if (mine !== job) return;
  $("play").disabled = !sound.length;
  const found = record.events.map((event) => event.label).join(", ") || "no word";
  say(`${name}: ${seconds(record.seconds)}, ${found}.`);
}

async function openSound(data, name) {
  try {
    await hear(await decode(data), name);
  } catch (error) {
    say(`${name}: cannot be read as sound (${error.message}).`, true);
  }
}

async function openFile(file) {
  $("example").value = "";
  await openSound(await file.arrayBuffer(), file.name);
}

async function openUrl(url, name, asked = { answer: fetch(url) }) {
  const answer = await asked.answer;
  if (!answer.ok) return say(`${name}: HTTP ${answer.status}`, true);
  await openSound(await answer.arrayBuffer(), name);
}

async function startListening() {
  const mine = await begin(true);
  if (!mine) return;
  whole = null;
  $("example").value = "";
  try {
    await spotter.listen();
  } catch (error) {
    return say(`No microphone: ${error.message}. Open a file or an example instead.`, true);
  }
  if (mine !== job) return;
  setListening(true);
  say("Listening. Say one of: " + spotter.labels.filter((label) => !label.startsWith("_")).join(", ") + ".");
}

async function stopListening() {
  setListening(false);
  await spotter.stop();
  await endRecord("microphone");
  say(`Stopped after ${seconds(record.seconds)}.`);
}

// A live sound has ended: from now on it can be played, and processed again with another setting.
async function endRecord(name) {
  await spotter.flush();
  record.isLive = false;
  whole = [record.sound.slice(0, record.samples), name];
  $("play").disabled = !record.samples;
  timeline.draw();
}

function setListening(on) {
  isListening = on;
  $("listen").setAttribute("aria-pressed", on);
  $("listen").querySelector("span").textContent = on ? "Stop" : "Listen";
}

/** Follows the sound that `deltakwt explore --live` sends: 16-bit samples of 16 kHz. */
async function follow(url) {
  const mine = await begin(true);
  if (!mine) return;
  whole = null;
  say("Showing the sound of this machine.");
  const reader = (await fetch(url)).body.getReader();
  let rest = new Uint8Array(0);
  for (;;) {
    const { done, value } = await reader.read();
    if (mine !== job) return reader.cancel();
    if (done) break;
    const bytes = new Uint8Array(rest.length + value.length);
    bytes.set(rest);
    bytes.set(value, rest.length);
    const whole = bytes.length - (bytes.length % 2);
    rest = bytes.slice(whole);
    await spotter.push(Float32Array.from(new Int16Array(bytes.buffer, 0, whole / 2), (sample) => sample / 32768));
  }
  if (mine !== job) return;
  await endRecord("live");
  say("The sound has ended.");
}

function stopPlaying() {
  player?.stop();
  player = undefined;
  $("play").textContent = "Play";
}

function play() {
  if (player) return stopPlaying();
  const context = new AudioContext({ sampleRate: 16000 });
  const buffer = context.createBuffer(1, record.samples, 16000);
  buffer.copyToChannel(record.sound.subarray(0, record.samples), 0);
  player = context.createBufferSource();
  player.buffer = buffer;
  player.connect(context.destination);
  player.onended = () => {
    context.close();
    stopPlaying();
  };
  player.start();
  $("play").textContent = "Stop playing";
}

// ---- what the engine reports

function takeWindow(window) {
  record.addWindow(window);
  timeline.draw();
  if (timeline.cursor < 0) showWindow(-1);
  const { windows, macs, computed } = record;
  const ms = record.medianMs;
  const mean = macs / windows.length;
  $("m-macs").textContent = percent(mean);
  $("m-bar").firstChild.style.width = `${Math.min(100, mean)}%`;
  if (window.computed) $("m-now").textContent = amount((window.macsPercent / 100) * spotter.denseMacs);
  $("m-ms").textContent = `${ms.toFixed(1)} ms`;
  $("m-core").textContent = percent((ms * computed) / windows.length / (10 * spotter.hop));
  $("m-reused").textContent = percent(100 * (1 - computed / windows.length), 0);
  if (computed) thresholds.measured(macs / computed);
}

function showWindow(number) {
  const wanted = number < 0 ? (record?.windows.length ?? 0) - 1 : number;
  const shown = record?.computedAt(wanted) ?? -1;
  grid.show(record?.windows[shown] ?? null, number >= 0 && shown !== wanted);
}

function takeWord(event) {
  const number = record.events.push(event);
  if (number === 1) $("words").replaceChildren();
  performance.mark("word");
  const button = make("button", { type: "button" }, make("b", {}, event.label), make("span", {}, `${seconds(event.start)} to ${seconds(event.end)}, score ${event.score.toFixed(3)}`), make("em", {}, "why?"));
  button.addEventListener("click", () => {
    for (const other of $("words").querySelectorAll("button")) other.setAttribute("aria-current", other === button);
    explain.show(event, record, spotter).catch((error) => say(error.message, true));
  });
  $("words").append(make("li", {}, button));
  timeline.draw();
}

// ---- the page itself

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  $("theme").setAttribute("aria-pressed", theme === "dark");
  $("theme").textContent = theme === "dark" ? "Light" : "Dark";
}

function redraw() {
  timeline.draw();
  thresholds.draw();
  explain.draw();
  if (spotter) showLegend();
  if (record?.windows.length) showWindow(timeline.cursor);
}

function wire() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  setTheme(dark.matches ? "dark" : "light");
  dark.addEventListener("change", () => (setTheme(dark.matches ? "dark" : "light"), redraw()));
  $("theme").addEventListener("click", () => (setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"), redraw()));
  addEventListener("resize", redraw);
  $("listen").addEventListener("click", () => (isListening ? stopListening() : startListening()));
  $("play").addEventListener("click", play);
  $("setting").addEventListener("change", () => chooseSetting($("setting").value, true));
  for (const list of [$("model"), $("arithmetic")]) list.addEventListener("change", () => changeModel().catch((error) => say(error.message, true)));
  $("example").addEventListener("change", () => {
    const { value, selectedOptions } = $("example");
    if (value) openUrl(value, selectedOptions[0].textContent);
  });
  $("file").addEventListener("change", async () => {
    const [file] = $("file").files;
    if (file) await openFile(file);
    $("file").value = "";
  });
  addEventListener("dragover", (event) => {
    event.preventDefault();
    $("drop").hidden = false;
  });
  addEventListener("dragleave", (event) => ($("drop").hidden = event.relatedTarget === null));
  addEventListener("drop", async (event) => {
    event.preventDefault();
    $("drop").hidden = true;
    const [file] = event.dataTransfer.files;
    if (file) await openFile(file);
  });
}

// Fills the lists, and asks for the first sound while the model is loaded.
function showContents(found) {
  contents = found;
  const options = (list) => list.map(({ name, url }) => make("option", { value: url }, name));
  $("model").replaceChildren(...options(contents.models));
  $("example").replaceChildren(make("option", { value: "" }, "choose…"), ...options(contents.sounds));
  const [first] = contents.live ? [] : contents.sounds;
  return first && { answer: fetch(first.url) }; // in an object, so that it is not waited for
}

async function start() {
  const listed = fetch("contents.json").then(async (answer) => showContents(await answer.json()));
  const opened = openModel(listed);
  wire();
  timeline.draw();
  const asked = await listed;
  await opened;
  if (contents.offline.length) navigator.serviceWorker?.register("offline.js").catch(() => {}); // needs https
  if (contents.live) return follow("live");
  say("Ready. Press Listen and speak, open or drop a sound file, or choose an example.");
  const [first] = contents.sounds;
  if (first) {
    $("example").value = first.url;
    await openUrl(first.url, first.name, asked);
  }
}

start().catch((error) => say(error.message, true));
