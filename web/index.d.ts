/** @deltakwt/web: words in sound, in the browser and in Node. */

/** A threshold of a site: one number, or one for each layer. */
export type Threshold = number | number[];
export type Site = "x" | "q" | "k" | "scores" | "softmax" | "heads" | "mlp_in" | "mlp_hidden" | "v";
export type Thresholds = Partial<Record<Site, Threshold>>;

export interface FrontEnd {
  smooth: boolean;
  floor: number;
  quantile: number;
}

/** How a model is run. Without thresholds it runs densely. */
export interface Setting {
  name: string;
  thresholds: Thresholds | null;
  front_end: FrontEnd;
}

/** The name of a profile, "dense", the form "0.2_0.2_0.2_0.05_0.001_0.05", or the parts. */
export type SettingLike =
  | string
  | { name?: string; thresholds?: Thresholds | string | null; front_end?: Partial<FrontEnd> };

/** A word in a stream. Times are seconds since its start. */
export interface WordEvent {
  label: string;
  score: number;
  start: number;
  end: number;
  /** Seconds of sound that were needed to decide. */
  time: number;
  /** Start of the best window. */
  window: number;
}

/** One second of the stream, as the model and the decision rule saw it. */
export interface WindowEvent {
  number: number;
  start: number;
  /** False: it has the logits of an earlier window, because it is similar or no word can depend on
   * it. Its counts are 0. */
  computed: boolean;
  /** Smoothed posteriors, (labels). */
  scores: Float32Array;
  logits: Float32Array;
  /** Values kept at each site, (layers, 9), or null for a dense run. */
  kept: Float32Array | null;
  /** Multiply-accumulates of each product, (layers, 6). */
  macs: Float32Array;
  /** The newest rows of features, (rows, 40). */
  features: Float32Array;
  macsPercent: number;
  ms: number;
}

export interface Explanation {
  label: string;
  score: number;
  scores: Float32Array;
  logits: Float32Array;
  macs: Float32Array;
  /** With `trace`: values that each token kept, (9 sites, layers, tokens). */
  kept: Float32Array | null;
  macsPercent: number;
  ms: number;
}

export interface ModelDocument {
  name: string;
  /** In which numbers the layers are computed: 16-bit integers or floats. */
  arithmetic: "fixed" | "float";
  labels: string[];
  setting: string;
  thresholds: Thresholds | null;
  front_end: FrontEnd;
  decision: Record<string, unknown>;
  profiles: Record<string, { thresholds: Thresholds | null; front_end: FrontEnd; measured: Record<string, unknown> }>;
}

export interface LoadOptions {
  setting?: SettingLike;
  /** Run in a worker. The default is true where there are workers. */
  worker?: boolean;
  /** Another place of the engine, or a compiled one. */
  wasm?: string | URL | WebAssembly.Module;
}

/** Loads a web model (`deltakwt export --target web`) from an address or from bytes. The engine is
 * compiled while a promise of them is waited for. */
export function load(url: ModelSource | Promise<ModelSource>, options?: LoadOptions): Promise<Spotter>;
export type ModelSource = string | URL | ArrayBuffer | ArrayBufferView;

/** Finds words in one stream. */
export class Spotter {
  readonly document: ModelDocument;
  readonly labels: string[];
  /** `stride`: steps of 10 ms from one frame to the next. */
  readonly config: { dim: number; heads: number; mlp: number; layers: number; labels: number; frames: number; stride: number; tokens: number };
  /** Seconds from one window to the next. */
  readonly hop: number;
  readonly denseMacs: number;
  readonly arithmetic: "fixed" | "float";
  /** A new setting begins with an empty window; times go on. */
  get setting(): Setting;
  set setting(wanted: SettingLike);

  /** Returns a function that removes the listener. */
  on(name: "word", listener: (event: WordEvent) => void): () => void;
  on(name: "window", listener: (window: WindowEvent) => void): () => void;
  on(name: "sound", listener: (block: Float32Array) => void): () => void;
  on(name: "error", listener: (error: Error) => void): () => void;

  /** Takes a block of any length and rate and returns the words that it completes. */
  push(block: ArrayLike<number>, rate?: number): Promise<WordEvent[]>;
  /** Ends the stream and returns the words of its last second. `reset` starts another. */
  flush(): Promise<WordEvent[]>;
  reset(): Promise<void>;
  /** Listens to the microphone until `stop`. Only in browsers. */
  listen(): Promise<void>;
  stop(): Promise<void>;
  /** Runs one second of 16 kHz sound apart from the stream. */
  explain(samples: Float32Array, options?: { setting?: SettingLike; trace?: boolean }): Promise<Explanation>;
  /** Finds the words of a whole 16 kHz sound apart from the stream. */
  spot(samples: Float32Array, options?: { setting?: SettingLike }): Promise<{ events: WordEvent[]; windows: WindowEvent[] }>;
  close(): void;
}

export class Resampler {
  push(block: ArrayLike<number>, rate: number): Float32Array;
  flush(): Float32Array;
}

export const SITES: Site[];
export const PRODUCTS: string[];
/** The modules: for every browser with SIMD, and for relaxed SIMD. */
export const MODULES: [string, string];
export function moduleName(): string;
export function parseThresholds(text: string): Thresholds;
export function resolveSetting(document: ModelDocument, wanted?: SettingLike | null): Setting;
export function readModel(data: ArrayBuffer | ArrayBufferView): Promise<{ document: ModelDocument; file: Uint8Array }>;
