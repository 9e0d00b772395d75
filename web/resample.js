// Sound of any rate to 16 kHz, block by block: a windowed sinc, cut off a little below half of the
// lower rate.

const TO = 16000;
const ZEROS = 24; // zero crossings of the sinc on each side
const STEPS = 512; // table entries from one zero crossing to the next
const BETA = 9; // of the Kaiser window: side lobes below -90 dB

let table; // the right half of the windowed sinc

function bessel(x) {
  let sum = 1;
  for (let term = 1, k = 1; term > 1e-12 * sum; k++) sum += term *= (x / (2 * k)) ** 2;
  return sum;
}

function kernel() {
  if (table) return table;
  table = new Float64Array(ZEROS * STEPS + 2);
  for (let i = 0; i <= ZEROS * STEPS; i++) {
    const x = i / STEPS;
    const window = bessel(BETA * Math.sqrt(Math.max(0, 1 - (x / ZEROS) ** 2))) / bessel(BETA);
    table[i] = (x ? Math.sin(Math.PI * x) / (Math.PI * x) : 1) * window;
  }
  return table;
}

export class Resampler {
  #rate = 0;
  #held = new Float32Array(0); // input that is still needed
  #first = 0; // number of the first held input sample
  #made = 0; // output samples so far

  /** Returns the 16 kHz samples that this block completes. The rate may change between blocks. */
  push(block, rate) {
    if (!(rate >= 1000 && rate <= 768000)) throw new Error(`sample rate ${rate}: must be 1000 to 768000 Hz`);
    if (rate === TO && this.#rate !== 0 && this.#rate !== TO) this.#start(rate);
    if (rate === TO) return Float32Array.from(block);
    if (rate !== this.#rate) this.#start(rate);
    const input = new Float32Array(this.#held.length + block.length);
    input.set(this.#held);
    input.set(block, this.#held.length);
    return this.#run(input, this.#first + input.length - this.#reach());
  }

  /** Returns the samples that wait for more input. */
  flush() {
    if (!this.#rate || this.#rate === TO) return new Float32Array(0);
    const end = this.#first + this.#held.length;
    const input = new Float32Array(this.#held.length + 2 * this.#reach());
    input.set(this.#held);
    return this.#run(input, end);
  }

  #start(rate) {
    this.#rate = rate;
    this.#made = 0;
    this.#held = rate === TO ? new Float32Array(0) : new Float32Array(this.#reach());
    this.#first = -this.#held.length;
  }

  #scale() {
    return 0.97 * Math.min(1, TO / this.#rate); // zero crossings for each input sample
  }
  #reach() {
    return Math.ceil(ZEROS / this.#scale()) + 1;
  }

  // Makes every output sample whose position in the input lies below `limit`.
  #run(input, limit) {
    const ratio = this.#rate / TO;
    const count = Math.max(0, Math.ceil(limit / ratio) - this.#made);
    const out = new Float32Array(count);
    const scale = this.#scale();
    const taps = kernel();
    const width = ZEROS / scale;
    for (let i = 0; i < count; i++) {
      const centre = (this.#made + i) * ratio - this.#first;
      const last = Math.min(input.length - 1, Math.floor(centre + width));
      let sum = 0;
      for (let j = Math.max(0, Math.ceil(centre - width)); j <= last; j++) {
        const at = Math.abs(j - centre) * scale * STEPS;
        const low = at | 0;
        sum += input[j] * (taps[low] + (at - low) * (taps[low + 1] - taps[low]));
      }
      out[i] = sum * scale;
    }
    this.#made += count;
    const keep = Math.max(0, Math.floor(this.#made * ratio - width) - 1 - this.#first);
    this.#held = input.slice(Math.min(keep, input.length));
    this.#first += Math.min(keep, input.length);
    return out;
  }
}

/** Rounds samples in [-1, 1] to 16 bits. Throws at NaN or infinity. */
export function toInt16(block) {
  const out = new Int16Array(block.length);
  for (let i = 0; i < block.length; i++) {
    const value = Math.round(block[i] * 32768);
    if (!Number.isFinite(value)) throw new Error("sound: a sample is not a finite number");
    out[i] = Math.max(-32768, Math.min(32767, value));
  }
  return out;
}
