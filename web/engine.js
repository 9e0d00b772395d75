// The WebAssembly engine: memory, model, stream. One engine follows one stream at a time.
import { PRODUCTS, SITES, thresholdTable } from "./setting.js";

const SECOND = 16000;
const FEATURES = 40;
const STEPS = 98; // frames of one second, if there is one every 10 ms

/** The module for every browser with SIMD, and the one for relaxed SIMD. */
export const MODULES = ["deltakwt.wasm", "deltakwt-relaxed.wasm"];

// The smallest module with an instruction of relaxed SIMD.
const RELAXED = Uint8Array.of(
  0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 15, 1, 13, 0, 65, 1, 253, 15, 65, 2, 253, 15,
  253, 128, 2, 11,
);

/** Returns the file name of the fastest module that this browser can run. */
export function moduleName() {
  return MODULES[WebAssembly.validate(RELAXED) ? 1 : 0];
}

export class Engine {
  /** `module` is a WebAssembly.Module, `file` the bytes of a model file. */
  constructor(module, file) {
    this.wasm = new WebAssembly.Instance(module).exports;
    this.wasm._initialize?.();
    const at = this.wasm.reserve_file(file.length);
    if (!at) throw new Error("no memory for the model");
    this.#bytes(at, file.length).set(file);
    this.#check(this.wasm.open_model(at, file.length));
    const [dim, heads, mlp, layers, labels, frames] = this.#words(this.wasm.config(), 7);
    const stride = Math.round(STEPS / frames); // steps of 10 ms from one frame to the next
    this.config = { dim, heads, mlp, layers, labels, frames, stride, tokens: frames + 1 };
    this.arithmetic = this.wasm.is_fixed() ? "fixed" : "float";
    this.hop = this.#words(this.wasm.decision(), 1)[0];
    this.#step = this.wasm.window_step();
  }
  #step;

  /** MACs of one window without deltas: every percentage is of this. */
  get denseMacs() {
    const { dim: d, mlp: m, layers, tokens: t } = this.config;
    return layers * (4 * t * d * d + 2 * t * t * d + 2 * t * d * m);
  }

  /** Starts a new stream with this setting. */
  setup({ thresholds, front_end }) {
    if (thresholds) {
      const table = thresholdTable(thresholds, this.config.layers);
      this.#floats(this.wasm.threshold_buffer(), table.length).set(table);
    }
    this.isDense = !thresholds;
    const { smooth, floor, quantile } = front_end;
    this.#check(this.wasm.setup(thresholds ? 0 : 1, smooth ? 1 : 0, floor, quantile));
  }

  /** Takes up to one second of 16-bit samples. */
  push(samples) {
    this.#fill(samples);
    this.#check(this.wasm.push(samples.length));
    return this.#collect();
  }

  /** Ends the stream. */
  flush() {
    this.#check(this.wasm.flush());
    return this.#collect();
  }

  /** Runs one second apart from the stream. With `trace`, `kept` has the deltas that each token
   * kept, (sites, layers, tokens). */
  explain(samples, trace = false) {
    const second = new Int16Array(SECOND);
    second.set(samples.subarray(0, SECOND));
    this.#fill(second);
    this.#check(this.wasm.explain(trace ? 1 : 0));
    const { layers, labels, tokens } = this.config;
    const macs = new BigInt64Array(this.wasm.memory.buffer, this.wasm.explained_macs(), layers * PRODUCTS.length);
    return {
      logits: this.#floats(this.wasm.explained_logits(), labels).slice(),
      macs: Float32Array.from(macs, Number),
      kept: trace ? this.#floats(this.wasm.explained_kept(), SITES.length * layers * tokens).slice() : null,
    };
  }

  #fill(samples) {
    new Int16Array(this.wasm.memory.buffer, this.wasm.sample_buffer(), SECOND).set(samples);
  }

  #collect() {
    const windows = [];
    const words = [];
    const count = this.wasm.take_windows();
    for (let i = 0; i < count; i++) windows.push(this.#window(this.wasm.window_log() + 4 * i * this.#step));
    for (let at; (at = this.wasm.next_word()); ) {
      const [label, score, start, end, time, window] = new Float64Array(this.wasm.memory.buffer, at, 6);
      words.push({ label, score, start, end, time, window });
    }
    return { windows, words };
  }

  #window(at) {
    const { labels, layers } = this.config;
    const [number, computed] = this.#words(at, 2);
    const values = this.#floats(at + 8, this.#step - 2).slice();
    const sites = layers * SITES.length;
    const products = layers * PRODUCTS.length;
    const from = 2 * labels;
    return {
      number,
      computed: computed === 1,
      scores: values.subarray(0, labels),
      logits: values.subarray(labels, from),
      kept: this.isDense ? null : values.subarray(from, from + sites),
      macs: values.subarray(from + sites, from + sites + products),
      features:
        number === 0
          ? this.#floats(this.wasm.first_window_rows(), this.config.frames * FEATURES).slice()
          : values.subarray(from + sites + products),
    };
  }

  #check(status) {
    if (!status) return;
    const at = this.wasm.status_text(status);
    const bytes = new Uint8Array(this.wasm.memory.buffer, at);
    throw new Error(new TextDecoder().decode(bytes.slice(0, bytes.indexOf(0))));
  }
  #bytes(at, count) {
    return new Uint8Array(this.wasm.memory.buffer, at, count);
  }
  #words(at, count) {
    return new Uint32Array(this.wasm.memory.buffer, at, count);
  }
  #floats(at, count) {
    return new Float32Array(this.wasm.memory.buffer, at, count);
  }
}
