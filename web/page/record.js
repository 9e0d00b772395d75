// What was received and computed: samples, features, windows and words of one sound.

const RATE = 16000;
const BANDS = 40; // of the picture
const COEFFICIENTS = 40;
const MOST_SECONDS = 600;

// The inverse of the front end's DCT, from 40 coefficients to the middle of every second mel band.
const INVERSE = new Float32Array(BANDS * COEFFICIENTS);
for (let band = 0; band < BANDS; band++)
  for (let c = 0; c < COEFFICIENTS; c++)
    INVERSE[band * COEFFICIENTS + c] = (c ? 1 : 0.5) * Math.cos((Math.PI * (2 * (2 * band + 0.5) + 1) * c) / 160) * (2 / Math.sqrt(160));

export class Record {
  /** `stride`: steps of 10 ms from one row of features to the next. */
  constructor(isLive, stride) {
    this.isLive = isLive;
    this.stride = stride;
    this.sound = new Float32Array(16 * RATE);
    this.samples = 0;
    this.mel = new Uint8Array(16 * 100 * BANDS);
    this.frames = 0;
    this.windows = [];
    this.events = [];
    this.macs = 0; // percent, summed over windows
    this.computed = 0;
  }

  get seconds() {
    return this.samples / RATE;
  }
  get bands() {
    return BANDS;
  }

  /** Of the newest computed windows: other work of the machine disturbs single ones. */
  get medianMs() {
    const times = this.windows.filter((window) => window.computed).slice(-50).map((window) => window.ms);
    return times.sort((a, b) => a - b)[times.length >> 1] ?? 0;
  }

  addSound(block) {
    if (this.samples + block.length > MOST_SECONDS * RATE) return;
    if (this.samples + block.length > this.sound.length) this.sound = grown(this.sound, this.samples + block.length);
    this.sound.set(block, this.samples);
    this.samples += block.length;
  }

  addWindow(window) {
    this.windows.push(window);
    this.macs += window.macsPercent;
    this.computed += window.computed ? 1 : 0;
    const steps = (window.features.length / COEFFICIENTS) * this.stride;
    const first = Math.round(window.start * 100) + this.stride * Math.ceil(98 / this.stride) - steps;
    for (let i = 0; i < steps; i++) {
      const row = Math.floor(i / this.stride);
      this.#addRow(first + i, window.features.subarray(row * COEFFICIENTS, (row + 1) * COEFFICIENTS));
    }
  }

  #addRow(frame, row) {
    if (frame < 0 || frame >= MOST_SECONDS * 100) return;
    if ((frame + 1) * BANDS > this.mel.length) this.mel = grown(this.mel, (frame + 1) * BANDS);
    for (let band = 0; band < BANDS; band++) {
      let sum = 0;
      for (let c = 0; c < COEFFICIENTS; c++) sum += INVERSE[band * COEFFICIENTS + c] * row[c];
      this.mel[frame * BANDS + band] = Math.max(0, Math.min(255, (sum + 9) * 19)); // log energies -9 to 4
    }
    this.frames = Math.max(this.frames, frame + 1);
  }

  /** The number of the window whose newest sound is at a time. */
  windowAt(time, hop) {
    if (!this.windows.length) return -1;
    const found = this.windows.findIndex((window) => window.start + 1 + hop / 2 >= time);
    return found < 0 ? this.windows.length - 1 : found;
  }

  /** The number of the last window that was computed, up to `number`; -1 if there is none. */
  computedAt(number) {
    while (number >= 0 && !this.windows[number].computed) number--;
    return number;
  }

  /** One second of sound from a time on. */
  second(start) {
    const clip = new Float32Array(RATE);
    const from = Math.round(start * RATE);
    const known = this.sound.subarray(Math.max(0, from), Math.min(this.samples, from + RATE));
    clip.set(known, Math.max(0, -from));
    return clip;
  }
}

function grown(array, least) {
  const larger = new array.constructor(Math.max(2 * array.length, least));
  larger.set(array);
  return larger;
}
