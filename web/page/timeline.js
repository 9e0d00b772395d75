// The picture: sound, features, posteriors, MACs and layers over the same time.
import { colourMap, css, drawBytes, drawWave, palette, percent, prepare, seconds } from "./draw.js";

const LIVE_SECONDS = 8;
const TAIL = 0.6; // seconds after the end of a sound
const GAP = 8;
const NAMED = 0.25; // curves that rise to this posterior are named
const NARROW = 560; // pixels
const TITLE = 17; // height of a lane's title
// Shares of the height.
const LANES = [
  ["sound", 0.2, "sound and words", ""],
  ["mel", 0.2, "front end: what the model sees", ", low tones below"],
  ["scores", 0.22, "posteriors of the words, averaged over windows", "; a word fires above “on”"],
  ["macs", 0.18, "MACs of each window, in percent of the dense model", ""],
  ["layers", 0.2, "the same for each layer", ", from the first (top) to the last"],
];

export class Timeline {
  /** `about`: labels, hop in seconds, config, decision. `onCursor` gets the number of a window. */
  constructor(canvas, onCursor) {
    this.canvas = canvas;
    this.onCursor = onCursor;
    this.cursor = -1; // window; -1 follows the newest
    canvas.addEventListener("pointermove", (event) => this.#point(event));
    canvas.addEventListener("pointerdown", (event) => this.#point(event));
    canvas.addEventListener("pointerleave", () => this.#move(-1));
    canvas.addEventListener("keydown", (event) => this.#key(event));
  }

  show(record, about) {
    this.record = record;
    this.about = about;
    this.cursor = -1;
    this.draw();
  }

  get range() {
    const { seconds: length, isLive } = this.record;
    if (isLive) return [Math.max(0, length - LIVE_SECONDS), Math.max(LIVE_SECONDS, length)];
    return [0, Math.max(1.2, length + TAIL)];
  }

  #point(event) {
    if (!this.record?.windows.length) return;
    const [t0, t1] = this.range;
    const time = t0 + ((t1 - t0) * event.offsetX) / this.canvas.clientWidth;
    this.#move(this.record.windowAt(time, this.about.hop));
  }

  #key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -1e9, End: 1e9 }[event.key];
    if (!step || !this.record?.windows.length) return;
    event.preventDefault();
    const last = this.record.windows.length - 1;
    const from = this.cursor < 0 ? last : this.cursor;
    this.#move(Math.max(0, Math.min(last, from + step)));
  }

  #move(window) {
    if (window === this.cursor) return;
    this.cursor = window;
    this.onCursor(window);
    this.draw();
  }

  /** Draws at the next frame of the screen. */
  draw() {
    if (this.pending) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      this.#draw();
    });
  }

  #draw() {
    const { context, width, height } = prepare(this.canvas);
    const colours = palette();
    const axis = 18;
    let y = 0;
    this.place = { context, width, colours };
    for (const [name, share, title, more] of LANES) {
      const h = share * (height - axis) - GAP - TITLE;
      context.fillStyle = colours.soft;
      context.fillText(width < NARROW ? title : title + more, 1, y + 12);
      y += TITLE;
      context.fillStyle = colours.page;
      context.beginPath();
      context.roundRect(0, y, width, h, 5);
      context.fill();
      if (this.record) {
        context.save();
        context.clip();
        this[`_${name}`](y, h);
        context.restore();
      }
      y += h + GAP;
    }
    if (!this.record) return;
    this.#axis(height - axis, axis);
    this.#cursor(height - axis - GAP);
    this.canvas.setAttribute("aria-label", this.#described());
  }

  x(time) {
    const [t0, t1] = this.range;
    return ((time - t0) / (t1 - t0)) * this.place.width;
  }

  _sound(y, h) {
    const { context, width, colours } = this.place;
    const [t0, t1] = this.range;
    for (const event of this.record.events) {
      const [a, b] = [this.x(event.start), this.x(Math.min(event.end, this.record.seconds))];
      if (b < 0) continue;
      context.fillStyle = colours.word;
      context.globalAlpha = 0.14;
      context.fillRect(a, y, b - a, h);
      context.globalAlpha = 1;
      context.font = "600 13px system-ui, sans-serif";
      context.textAlign = "center";
      context.fillText(event.label, Math.max(24, (a + b) / 2), y + h - 7);
      context.textAlign = "left";
      context.font = "11.5px system-ui, sans-serif";
    }
    drawWave(context, this.record.sound, this.record.samples, t0, t1, 0, y + 4, width, h - 24, colours.wave);
  }

  _mel(y, h) {
    const { bands, mel, frames } = this.record;
    const [t0, t1] = this.range;
    const last = Math.min(frames, Math.floor(this.record.seconds * 100));
    const from = Math.max(0, Math.floor(t0 * 100));
    const to = Math.min(last, Math.ceil(t1 * 100));
    const bytes = stretched(mel.subarray(from * bands, Math.max(from, to) * bands));
    const x = this.x(from / 100);
    drawBytes(this.place.context, bytes, to - from, bands, colourMap(), x, y, this.x(to / 100) - x, h);
  }

  _scores(y, h) {
    const { context, width, colours } = this.place;
    const { windows } = this.record;
    const { labels, decision } = this.about;
    const at = (value) => y + h - 4 - value * (h - 12);
    context.strokeStyle = colours.line;
    for (const level of [decision.off, decision.on]) {
      context.setLineDash([4, 4]);
      context.beginPath();
      context.moveTo(0, at(level));
      context.lineTo(width, at(level));
      context.stroke();
      context.setLineDash([]);
    }
    const taken = [];
    const names = [];
    labels.forEach((label, i) => {
      const isWord = !label.startsWith("_");
      if (!windows.some((window) => window.scores[i] > 0.1)) return;
      context.strokeStyle = isWord ? colours.curves[i % colours.curves.length] : colours.soft;
      context.lineWidth = isWord ? 2 : 1;
      context.globalAlpha = isWord ? 1 : 0.45;
      context.beginPath();
      windows.forEach((window, n) => context[n ? "lineTo" : "moveTo"](this.x(window.start + 1), at(window.scores[i])));
      if (windows.length === 1) context.arc(this.x(windows[0].start + 1), at(windows[0].scores[i]), 2, 0, 7);
      context.stroke();
      context.globalAlpha = 1;
      context.lineWidth = 1;
      if (isWord || width >= NARROW)
        names.push(...this.#peaks(i).map((window) => [!isWord, label.replaceAll("_", ""), context.strokeStyle, this.x(window.start + 1), at(window.scores[i])]));
    });
    for (const [name, level] of [["on", decision.on], ["off", decision.off]]) this.#write(taken, `${name} ${level}`, colours.soft, 5, at(level) - 3);
    for (const [, ...name] of names.filter(([, , , x]) => x >= 0).sort(([a], [b]) => a - b)) this.#name(y, taken, ...name);
  }

  // The highest window of each time that a curve rises above NAMED.
  #peaks(label) {
    const peaks = [];
    let best = null;
    for (const window of this.record.windows) {
      const score = window.scores[label];
      if (score < NAMED) {
        if (best) peaks.push(best);
        best = null;
      } else if (!best || score > best.scores[label]) best = window;
    }
    return best ? [...peaks, best] : peaks;
  }

  // Writes the name of a curve below its peak, with a rim that keeps it apart from the lines. A name
  // that would cover another is left out.
  #name(top, taken, name, colour, x, y) {
    const { context, width } = this.place;
    const half = context.measureText(name).width / 2;
    const at = Math.max(half + 2, Math.min(width - half - 2, x));
    const below = Math.max(top + 24, y + 14);
    if (taken.some(([l, r, b]) => at - half < r && at + half > l && Math.abs(b - below) < 12)) return;
    this.#write(taken, name, colour, at - half, below);
  }

  #write(taken, text, colour, x, y) {
    const { context, colours } = this.place;
    taken.push([x, x + context.measureText(text).width, y]);
    context.lineWidth = 3;
    context.strokeStyle = colours.page;
    context.strokeText(text, x, y);
    context.fillStyle = colour;
    context.fillText(text, x, y);
    context.lineWidth = 1;
  }

  // The percentage at the top of the lane of MACs.
  #scale() {
    const largest = Math.max(0, ...this.record.windows.map((window) => window.macsPercent));
    return [20, 40, 60].find((level) => largest <= level) ?? 100;
  }

  _macs(y, h) {
    const { context, colours, width } = this.place;
    const { hop, denseMacs } = this.about;
    const floor = y + h - 3;
    const full = h - 10;
    const scale = this.#scale();
    const w = Math.max(1.5, this.x(hop) - this.x(0) - 1);
    for (const window of this.record.windows) {
      const x = this.x(window.start + 1 - hop);
      if (x > width || x + w < 0) continue;
      if (!window.computed) {
        context.fillStyle = colours.line;
        context.fillRect(x, floor - 2, w, 2);
        continue;
      }
      const [attention, mlp] = halves(window.macs).map((macs) => ((100 * macs) / denseMacs / scale) * full);
      context.fillStyle = colours.attention;
      context.fillRect(x, floor - attention, w, attention);
      context.fillStyle = colours.mlp;
      context.fillRect(x, floor - attention - mlp, w, mlp);
    }
    context.fillStyle = colours.soft;
    context.textAlign = "right";
    context.fillText(`${scale}%`, width - 6, y + 14);
    context.textAlign = "left";
  }

  _layers(y, h) {
    const { context, width } = this.place;
    const { hop, config } = this.about;
    const map = colourMap();
    const rows = h / config.layers;
    const dense = layerMacs(config);
    const scale = 1.3 * this.#scale(); // a layer can cost more than the mean of all
    const w = this.x(hop) - this.x(0) + 0.5;
    for (const window of this.record.windows) {
      const x = this.x(window.start + 1 - hop);
      if (x > width || x + w < 0 || !window.computed) continue;
      for (let layer = 0; layer < config.layers; layer++) {
        let sum = 0;
        for (let p = 0; p < 6; p++) sum += window.macs[layer * 6 + p];
        const share = Math.min(1, (100 * sum) / dense / scale);
        context.fillStyle = css(map[Math.round(255 * share)]);
        context.fillRect(x, y + layer * rows, w, rows - 1);
      }
    }
  }

  #axis(y, h) {
    const { context, width, colours } = this.place;
    const [t0, t1] = this.range;
    const step = [0.2, 0.5, 1, 2, 5, 10, 30, 60, 120].find((s) => ((t1 - t0) / s) * 52 < width) ?? 300;
    context.fillStyle = colours.soft;
    context.textAlign = "center";
    for (let t = Math.ceil(t0 / step) * step; t < t1; t += step) {
      const x = this.x(t);
      if (x > 12 && x < width - 16) context.fillText(`${+t.toFixed(1)} s`, x, y + h - 4);
    }
    context.textAlign = "left";
  }

  #cursor(height) {
    const window = this.record.windows[this.cursor];
    if (!window) return;
    const { context, width, colours } = this.place;
    const [a, b] = [this.x(window.start), this.x(window.start + 1)];
    context.fillStyle = colours.accent;
    context.globalAlpha = 0.1;
    context.fillRect(a, 0, b - a, height);
    context.globalAlpha = 1;
    context.fillRect(b - 0.75, 0, 1.5, height);
    const best = bestLabel(window.scores, this.about.labels);
    const cost = window.computed ? percent(window.macsPercent) : "not computed";
    const text = `${seconds(window.start + 1)} · ${best.label} ${best.score.toFixed(2)} · ${cost}`;
    const w = context.measureText(text).width + 12;
    const x = Math.max(2, Math.min(width - w - 2, b - w / 2));
    context.fillStyle = colours.text;
    context.beginPath();
    context.roundRect(x, height - 21, w, 19, 4);
    context.fill();
    context.fillStyle = colours.card;
    context.fillText(text, x + 6, height - 8);
  }

  #described() {
    const { events, windows, macs, seconds: length } = this.record;
    const words = events.map((event) => `${event.label} at ${event.start.toFixed(1)} s`).join(", ") || "no word";
    const cost = windows.length ? `, ${percent(macs / windows.length)} of the dense MACs` : "";
    return `${length.toFixed(1)} seconds of sound: ${words}${cost}.`;
  }
}

// Spreads the values between the background and the loudest over the colours.
function stretched(bytes) {
  const counts = new Uint32Array(256);
  for (const value of bytes) counts[value]++;
  const level = (share) => {
    let left = share * bytes.length;
    return Math.max(0, counts.findIndex((count) => (left -= count) <= 0));
  };
  const low = level(0.4);
  const range = Math.max(30, level(0.998) - low);
  return bytes.map((value) => Math.max(0, Math.min(255, (255 * (value - low)) / range)));
}

/** MACs of one layer without deltas. */
export function layerMacs({ dim: d, mlp: m, tokens: t }) {
  return 4 * t * d * d + 2 * t * t * d + 2 * t * d * m;
}

/** MACs of attention and of the MLP. */
export function halves(macs) {
  let attention = 0;
  let mlp = 0;
  macs.forEach((value, i) => (i % 6 < 4 ? (attention += value) : (mlp += value)));
  return [attention, mlp];
}

export function bestLabel(scores, labels) {
  let best = 0;
  scores.forEach((score, i) => (best = score > scores[best] ? i : best));
  return { label: labels[best], score: scores[best] };
}
