// @deltakwt/web: words in sound, in the browser and in Node.
import { makeCalls } from "./calls.js";
import { moduleName } from "./engine.js";
import { resolveSetting } from "./setting.js";

export { MODULES, moduleName } from "./engine.js";
export { readModel } from "./model.js";
export { Resampler } from "./resample.js";
export { PRODUCTS, SITES, parseThresholds, resolveSetting } from "./setting.js";
export { Stream } from "./stream.js";

/** Loads a web model and returns a Spotter. See index.d.ts. */
export async function load(url, { setting, worker = "Worker" in globalThis, wasm } = {}) {
  const remote = worker ? new Remote() : new Local();
  try {
    // Engine and model are fetched here while the worker starts.
    const engine = compiled(wasm ?? new URL(moduleName(), import.meta.url));
    const fetched = Promise.resolve(url).then(bytes);
    const [module, model] = await Promise.all([engine, fetched]);
    const about = await remote.call("load", { module, model, setting });
    return new Spotter(remote, about, resolveSetting(about.document, setting));
  } catch (error) {
    remote.close();
    throw error;
  }
}

// Asks for an address; anything else is returned as it is.
async function source(given) {
  if (typeof given !== "string" && !(given instanceof URL)) return given;
  const { href } = new URL(given, globalThis.location?.href ?? `file://${globalThis.process?.cwd?.() ?? ""}/`);
  if (href.startsWith("file:")) return (await import("node:fs/promises")).readFile(new URL(href));
  const answer = await fetch(href);
  if (!answer.ok) throw new Error(`${href}: HTTP ${answer.status}`);
  return answer;
}

async function bytes(given) {
  const found = await source(given);
  return found instanceof Response ? found.arrayBuffer() : found;
}

// Compiles while the bytes arrive, where the server names their type.
async function compiled(given) {
  const found = await source(given);
  if (found instanceof WebAssembly.Module) return found;
  if (!(found instanceof Response)) return WebAssembly.compile(found);
  if (found.headers.get("Content-Type") === "application/wasm") return WebAssembly.compileStreaming(found);
  return WebAssembly.compile(await found.arrayBuffer());
}

// The same calls with and without a worker.
class Remote {
  #waiting = new Map();
  #next = 1;
  #failure; // of the worker, which may come before the first call
  constructor() {
    this.worker = new Worker(new URL("./worker.js", import.meta.url), { type: "module" });
    this.worker.onmessage = ({ data: { id, result, error } }) => {
      const { resolve, reject } = this.#waiting.get(id);
      this.#waiting.delete(id);
      if (error === undefined) resolve(result);
      else reject(new Error(error));
    };
    this.worker.onerror = (event) => {
      this.#failure = new Error(event.message ?? "the worker failed");
      for (const { reject } of this.#waiting.values()) reject(this.#failure);
      this.#waiting.clear();
    };
  }
  call(call, values) {
    if (this.#failure) return Promise.reject(this.#failure);
    const id = this.#next++;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      this.worker.postMessage({ id, call, values });
    });
  }
  close() {
    this.worker.terminate();
  }
}

class Local {
  #calls = makeCalls();
  async call(call, values) {
    return this.#calls[call](values);
  }
  close() {}
}

export class Spotter {
  #remote;
  #listeners = { sound: new Set(), window: new Set(), word: new Set(), error: new Set() };
  #setting;
  #microphone;

  constructor(remote, { document, config, hop, denseMacs, arithmetic }, setting) {
    this.#remote = remote;
    this.document = document;
    this.config = config;
    this.hop = hop / 100; // seconds from one window to the next
    this.denseMacs = denseMacs;
    this.arithmetic = arithmetic;
    this.#setting = setting;
  }

  get labels() {
    return this.document.labels;
  }
  get setting() {
    return this.#setting;
  }
  /** The setting holds for all sound pushed after it. */
  set setting(wanted) {
    this.#setting = resolveSetting(this.document, wanted);
    this.#remote.call("setting", { setting: this.#setting }).catch((error) => this.#tell("error", error));
  }

  on(name, listener) {
    if (!this.#listeners[name]) throw new Error(`"${name}": events are ${Object.keys(this.#listeners).join(", ")}`);
    this.#listeners[name].add(listener);
    return () => this.#listeners[name].delete(listener);
  }
  #tell(name, value) {
    for (const listener of this.#listeners[name]) listener(value);
  }

  async push(block, rate = 16000) {
    return this.#show(await this.#remote.call("push", { block: Float32Array.from(block), rate }));
  }
  async flush() {
    return this.#show(await this.#remote.call("flush"));
  }
  reset() {
    return this.#remote.call("reset");
  }
  #show({ events, windows, sound }) {
    for (const block of sound) this.#tell("sound", block);
    for (const window of windows) this.#tell("window", window);
    for (const event of events) this.#tell("word", event);
    return events;
  }

  explain(samples, { setting = this.#setting, trace = false } = {}) {
    return this.#remote.call("explain", { samples, setting, trace });
  }
  spot(samples, { setting = this.#setting } = {}) {
    return this.#remote.call("spot", { samples, setting });
  }

  /** Listens to the microphone until `stop`. */
  async listen() {
    if (this.#microphone) return;
    const media = await navigator.mediaDevices.getUserMedia({
      audio: { channelCount: 1, echoCancellation: false, noiseSuppression: false, autoGainControl: false },
    });
    const context = new AudioContext();
    this.#microphone = { media, context };
    await context.audioWorklet.addModule(new URL("./worklet.js", import.meta.url));
    if (!this.#microphone) return; // stopped meanwhile
    const blocks = new AudioWorkletNode(context, "deltakwt-blocks", { numberOfOutputs: 0 });
    blocks.port.onmessage = ({ data }) => {
      if (!this.#microphone) return;
      this.push(data, context.sampleRate).catch((error) => this.#tell("error", error));
    };
    context.createMediaStreamSource(media).connect(blocks);
    await context.resume();
  }

  async stop() {
    const microphone = this.#microphone;
    this.#microphone = undefined;
    microphone?.media.getTracks().forEach((track) => track.stop());
    await microphone?.context.close();
  }

  close() {
    this.stop();
    this.#remote.close();
  }
}
