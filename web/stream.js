// One stream of sound through one engine, in the thread of the caller.
import { Engine } from "./engine.js";
import { Resampler, toInt16 } from "./resample.js";
import { PRODUCTS, resolveSetting } from "./setting.js";

const RATE = 16000;

export class Stream {
  /** `module`: a compiled engine; `model`: what `readModel` returns. */
  constructor(module, model, setting) {
    this.module = module;
    this.model = model;
    this.engine = new Engine(module, model.file);
    this.#begin(resolveSetting(model.document, setting));
  }
  #resampler;
  #base; // samples before the present setting
  #samples;
  #ended;

  #begin(setting, base = 0) {
    this.engine.setup(setting);
    this.current = setting;
    this.#resampler = new Resampler();
    this.#base = base;
    this.#samples = base;
    this.#ended = false;
  }

  get setting() {
    return this.current;
  }

  /** A new setting begins with an empty window; times go on. */
  set setting(wanted) {
    this.#begin(resolveSetting(this.model.document, wanted), this.#samples);
  }

  /** Forgets all sound; times begin at 0. */
  reset() {
    this.#begin(this.current);
  }

  get seconds() {
    return this.#samples / RATE;
  }

  /** Takes a block of any length and rate; returns {events, windows, sound}. `sound` is a list of
   * blocks at 16 kHz: what the engine received. */
  push(block, rate = RATE) {
    if (this.#ended) throw new Error("the stream has ended; reset it");
    return this.#run(this.#resampler.push(block, rate));
  }

  /** Ends the stream; returns the {events, windows} of its last second. */
  flush() {
    const before = this.#run(this.#resampler.flush());
    this.#ended = true;
    const last = this.#told(() => this.engine.flush());
    return join(before, last);
  }

  #run(sound) {
    const samples = toInt16(sound);
    const found = { events: [], windows: [], sound: [sound] };
    for (let at = 0; at < samples.length; at += RATE) {
      const part = samples.subarray(at, at + RATE);
      this.#samples += part.length;
      const { events, windows } = this.#told(() => this.engine.push(part));
      found.events.push(...events);
      found.windows.push(...windows);
    }
    return found;
  }

  // Runs the engine; gives labels, seconds and cost to what it found.
  #told(run) {
    const begun = performance.now();
    const { windows, words } = run();
    const computed = windows.reduce((count, window) => count + (window.computed ? 1 : 0), 0);
    const share = computed ? (performance.now() - begun) / computed : 0;
    const { labels } = this.model.document;
    const seconds = (samples) => (this.#base + samples) / RATE;
    const hop = this.engine.hop * 160;
    return {
      sound: [],
      events: words.map((word) => ({
        label: labels[word.label],
        score: word.score,
        start: seconds(word.start),
        end: seconds(word.end),
        time: seconds(word.time),
        window: seconds(word.window),
      })),
      windows: windows.map((window) => ({
        ...window,
        start: seconds(window.number * hop),
        ms: window.computed ? share : 0,
        macsPercent: window.computed ? (100 * sum(window.macs)) / this.engine.denseMacs : 0,
      })),
    };
  }

  // A second stream for questions, so that this one is not disturbed.
  #other(setting) {
    this.other ??= new Stream(this.module, this.model, setting);
    const wanted = resolveSetting(this.model.document, setting);
    if (JSON.stringify(wanted) !== JSON.stringify(this.other.current)) this.other.#begin(wanted);
    return this.other;
  }

  /** Runs one second with a setting, apart from this stream. */
  explain(samples, setting, trace = false) {
    const other = this.#other(setting);
    const resolved = other.setting;
    const begun = performance.now();
    const found = other.engine.explain(toInt16(samples), trace && !!resolved.thresholds);
    const ms = performance.now() - begun;
    const { layers } = this.engine.config;
    const scores = softmax(found.logits);
    const best = scores.indexOf(Math.max(...scores));
    return {
      ...found,
      scores,
      label: this.model.document.labels[best],
      score: scores[best],
      ms,
      macsPercent: (100 * sum(found.macs)) / this.engine.denseMacs,
      layers,
      products: PRODUCTS.length,
    };
  }

  /** Finds the words of a whole 16 kHz sound with a setting, apart from this stream. */
  spot(samples, setting) {
    const other = this.#other(setting);
    other.reset();
    const first = other.push(samples);
    const last = other.flush();
    return join(first, last);
  }
}

function join(one, two) {
  return { events: [...one.events, ...two.events], windows: [...one.windows, ...two.windows], sound: [...one.sound, ...two.sound] };
}

function sum(values) {
  let total = 0;
  for (const value of values) total += value;
  return total;
}

export function softmax(logits) {
  const top = Math.max(...logits);
  const powers = Float32Array.from(logits, (value) => Math.exp(value - top));
  const total = sum(powers);
  return powers.map((power) => power / total);
}
