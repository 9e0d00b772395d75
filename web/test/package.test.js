// The package under Node. DELTAKWT_WEB_MODEL names a web model, DELTAKWT_WEB_SOUND raw 16-bit
// samples of 16 kHz; tests/web/test_package.py makes both and compares the events with Python's.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { gunzipSync, gzipSync } from "node:zlib";
import { Resampler, load, parseThresholds, readModel, resolveSetting } from "../index.js";

const MODEL = process.env.DELTAKWT_WEB_MODEL;
const SOUND = process.env.DELTAKWT_WEB_SOUND;
const needsModel = { skip: MODEL && SOUND ? false : "DELTAKWT_WEB_MODEL and DELTAKWT_WEB_SOUND are not set" };

function sound() {
  const bytes = readFileSync(SOUND);
  return Float32Array.from(new Int16Array(bytes.buffer, bytes.byteOffset, bytes.length / 2), (v) => v / 32768);
}

let loaded;
/** One spotter for all tests, with an empty stream and the model's own setting. */
async function spotterOf() {
  loaded ??= await load(MODEL);
  loaded.setting = loaded.document.setting;
  await loaded.reset();
  return loaded;
}

async function words(spotter, samples, block = samples.length) {
  const found = [];
  for (let at = 0; at < samples.length; at += block) found.push(...(await spotter.push(samples.subarray(at, at + block))));
  return [...found, ...(await spotter.flush())];
}

test("thresholds are read in the paper's form", () => {
  const six = parseThresholds("0.2_0.1_0.2_0.05_0.001_-");
  assert.deepEqual(six, { x: 0.2, q: 0.1, k: 0.2, scores: 0.05, softmax: 0.001 });
  assert.deepEqual(parseThresholds("1,2_1_1_1_1_1").x, [1, 2]);
  assert.throws(() => parseThresholds("1_2"), /6, 8 or 9/);
  assert.throws(() => parseThresholds("a_1_1_1_1_1"), /not a number/);
});

test("a setting has a known name", () => {
  const document = { setting: "fast", thresholds: { x: 1 }, front_end: {}, profiles: { fast: { thresholds: { x: 1 }, front_end: {} } } };
  assert.equal(resolveSetting(document).name, "fast");
  assert.equal(resolveSetting(document, "dense").thresholds, null);
  assert.throws(() => resolveSetting(document, "slow"), /has fast, dense/);
});

test("a resampled tone keeps its frequency and its size, in blocks of any length", () => {
  for (const rate of [8000, 44100, 48000]) {
    const tone = Float32Array.from({ length: rate }, (_, i) => 0.5 * Math.sin((2 * Math.PI * 1000 * i) / rate));
    const whole = new Resampler();
    const all = [...whole.push(tone, rate), ...whole.flush()];
    assert.ok(Math.abs(all.length - 16000) <= 1, `${rate}: ${all.length}`);
    for (let i = 400; i < 15600; i++)
      assert.ok(Math.abs(all[i] - 0.5 * Math.sin((2 * Math.PI * i) / 16)) < 2e-3, `${rate} Hz at ${i}: ${all[i]}`);
    const parts = new Resampler();
    const cut = [];
    for (let at = 0; at < tone.length; at += 997) cut.push(...parts.push(tone.subarray(at, at + 997), rate));
    cut.push(...parts.flush());
    assert.deepEqual(cut.length, all.length);
    for (let i = 0; i < all.length; i++) assert.ok(Math.abs(cut[i] - all[i]) < 1e-6);
  }
});

test("a tone above 8 kHz does not come back as another one", () => {
  const tone = Float32Array.from({ length: 48000 }, (_, i) => Math.sin((2 * Math.PI * 11000 * i) / 48000));
  const out = new Resampler().push(tone, 48000).subarray(1000, 15000);
  assert.ok(Math.max(...out.map(Math.abs)) < 1e-3);
});

test("events and windows do not depend on the blocks, and are printed for Python", needsModel, async () => {
  const spotter = await spotterOf();
  const samples = sound();
  const seen = [[], []];
  let run = 0;
  const leave = spotter.on("window", ({ ms, ...window }) => seen[run].push(window));
  const whole = await words(spotter, samples);
  run = 1;
  await spotter.reset();
  assert.deepEqual(await words(spotter, samples, 777), whole);
  leave();
  assert.deepEqual(seen[1], seen[0]);
  seen[0].forEach((window, i) => assert.equal(window.number, i));
  const costs = seen[0].map(({ computed, macs }) => [computed, macs.reduce((sum, value) => sum + value, 0)]);
  assert.ok(costs.every(([computed, macs]) => computed === macs > 0));
  console.log(`EVENTS ${JSON.stringify(whole)}`);
  console.log(`SCORES ${JSON.stringify(seen[0].map(({ scores }) => [...scores]))}`);
  console.log(`COSTS ${JSON.stringify(costs)}`);
});

test("the words with the dense model are printed for Python", needsModel, async () => {
  const spotter = await spotterOf();
  const { events } = await spotter.spot(sound(), { setting: "dense" });
  console.log(`DENSE ${JSON.stringify(events)}`);
});

test("the logits of a second are printed for Python", needsModel, async () => {
  const spotter = await spotterOf();
  const { logits } = await spotter.explain(sound().subarray(0, 16000));
  console.log(`LOGITS ${JSON.stringify([...logits])}`);
});

test("listeners hear words and windows, and can leave", needsModel, async () => {
  const spotter = await spotterOf();
  const heard = { word: 0, window: 0, sound: 0 };
  for (const name of Object.keys(heard)) spotter.on(name, (value) => (heard[name] += name === "sound" ? value.length : 1));
  const leave = spotter.on("word", () => assert.fail("this listener has left"));
  leave();
  const samples = sound();
  const found = await words(spotter, samples);
  assert.equal(heard.word, found.length);
  assert.equal(heard.sound, samples.length);
  assert.ok(heard.window >= samples.length / 1600 - 10);
  assert.throws(() => spotter.on("nothing", () => {}), /events are/);
});

test("a dense run says the same words and costs more", needsModel, async () => {
  const spotter = await spotterOf();
  const samples = sound().subarray(0, 8 * 16000); // without noise
  const cost = async (setting) => {
    const { events, windows } = await spotter.spot(samples, { setting });
    return [events.map((event) => event.label), windows.reduce((sum, window) => sum + window.macsPercent, 0) / windows.length];
  };
  const [words, deltas] = await cost(spotter.setting);
  const [same, dense] = await cost({ thresholds: null, front_end: spotter.setting.front_end });
  assert.deepEqual(words, same);
  assert.ok(deltas < dense / 2, `${deltas}% against ${dense}%`);
});

test("thresholds of zero give the dense logits, and the trace counts what was kept", needsModel, async () => {
  const spotter = await spotterOf();
  const clip = sound().subarray(0, 16000);
  const dense = await spotter.explain(clip, { setting: "dense" });
  const exact = await spotter.explain(clip, { setting: "0_0_0_0_0_0_0_0", trace: true });
  // In fixed point a sum of rounded differences is not the rounded sum.
  const near = spotter.arithmetic === "fixed" ? 0.3 : 1e-3;
  dense.logits.forEach((logit, i) => assert.ok(Math.abs(logit - exact.logits[i]) < near, `${logit} ${exact.logits[i]}`));
  const { layers, tokens, dim } = spotter.config;
  assert.equal(exact.kept.length, 9 * layers * tokens);
  assert.equal(exact.kept[0], dim);
  const none = await spotter.explain(clip, { setting: "1e9_1e9_1e9_1e9_1e9_1e9", trace: true });
  assert.equal(none.kept.subarray(2, tokens).reduce((a, b) => a + b), 0);
});

test("a new setting holds for the sound after it, and times go on", needsModel, async () => {
  const spotter = await spotterOf();
  const samples = sound();
  await spotter.push(samples);
  spotter.setting = "dense";
  const found = await words(spotter, samples);
  assert.ok(found.length);
  assert.ok(found[0].time > samples.length / 16000);
});

test("damaged models are refused", needsModel, async () => {
  const bytes = readFileSync(MODEL);
  await assert.rejects(load(new Uint8Array(100)), /./);
  await assert.rejects(readModel(gzipSync("not a model at all")), /not a web model/);
  const changed = gunzipSync(bytes);
  changed[changed.length - 5000] ^= 1;
  await assert.rejects(load(gzipSync(changed, { level: 1 })), /damaged|not a model file/);
});

test("a worker that does not start is told", needsModel, async () => {
  globalThis.Worker = class {
    constructor() {
      queueMicrotask(() => this.onerror({ message: "no worker here" }));
    }
    terminate() {}
  };
  await assert.rejects(load(MODEL, { worker: true }), /no worker here/);
  delete globalThis.Worker;
});

test("sound that is not finite and rates that are not sound are refused", needsModel, async () => {
  const spotter = await spotterOf();
  await assert.rejects(spotter.push([Number.NaN]), /not a finite number/);
  await assert.rejects(spotter.push([0], 3), /sample rate/);
});
