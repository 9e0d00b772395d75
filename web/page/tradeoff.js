// Accuracy against MACs: what was measured for the model, and where the present setting lies.
import { palette, percent, prepare } from "./draw.js";

const MOST_LOST = 6; // points of accuracy below the best that are shown

export class Tradeoff {
  constructor(canvas, text) {
    Object.assign(this, { canvas, text });
  }

  setup(document) {
    this.curves = document.curves;
    this.points = this.curves ? named(this.curves.settings) : profiles(document);
    this.draw();
  }

  /** `name`: of the profile, or "". `count`: sites with deltas. `factor`: of all thresholds of the
   * profile that the curves belong to, or null. */
  show(state) {
    this.state = state;
    this.draw();
  }

  /** The share of the MACs that the present sound took. */
  measured(percentage) {
    this.now = percentage;
    this.draw();
  }

  draw() {
    if (this.pending || !this.points || !this.state) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      this.#draw();
    });
  }

  // What was measured for the present setting: a profile, or a place on a curve.
  #here() {
    const known = this.points.find((point) => point.name === this.state.name);
    if (known) return known;
    const curve = this.curves?.curves[this.state.count];
    return curve && this.state.factor !== null ? between(curve, this.state.factor) : null;
  }

  #draw() {
    const { context, width, height } = prepare(this.canvas);
    const colours = palette();
    const lines = Object.entries(this.curves?.curves ?? {});
    const all = [...this.points, ...lines.flatMap(([, points]) => points)].map((point) => point.accuracy);
    const best = all.length ? Math.max(...all) : 100;
    const low = Math.max(Math.min(...all, best), best - MOST_LOST) - 0.2;
    const high = best + 0.2 * (best - low); // room for names
    const box = { left: 46, right: width - 14, top: 6, bottom: height - 36 };
    const x = (macs) => box.left + (Math.min(macs, 100) / 100) ** 0.5 * (box.right - box.left);
    const y = (accuracy) => box.bottom - ((accuracy - low) / (high - low)) * (box.bottom - box.top);
    axes(context, colours, box, x, y, low, high);
    if (this.now !== undefined) {
      context.fillStyle = colours.mlp;
      context.globalAlpha = 0.75;
      context.fillRect(x(this.now) - 1, box.top, 2, box.bottom - box.top);
      context.globalAlpha = 1;
    }
    const taken = [];
    const here = this.#here();
    context.save();
    context.beginPath();
    context.rect(0, 0, width, box.bottom);
    context.clip();
    for (const [count, points] of lines) line(context, colours, points, x, y, count === String(this.state.count), `${count === "6" ? "six" : "eight"} sites`, taken);
    context.restore();
    for (const { point, names } of together(this.points)) dot(context, colours, x(point.macs_percent), y(point.accuracy), names, box, taken, here?.name && names.split(", ").includes(here.name));
    if (here && !here.name) dot(context, colours, x(here.macs_percent), y(here.accuracy), `×${this.state.factor.toFixed(2)}`, box, taken, true);
    this.#caption(here);
  }

  #caption(here) {
    const source = this.curves ?? this.points[0];
    let text = source ? `Measured on ${source.clips?.toLocaleString("en") ?? "its test"} clips.` : "Nothing was measured for this model.";
    if (this.curves) text += ` The lines: all thresholds of ${this.curves.base} times ${this.curves.factors[0]} to ${this.curves.factors.at(-1)}.`;
    if (here) text += ` ${here.name || "Here"}: ${percent(here.accuracy, 2)} right with ${percent(here.macs_percent)} of the MACs.`;
    else if (this.state.count) text += " The accuracy of these thresholds was not measured.";
    if (this.now !== undefined) text += ` The orange line: ${percent(this.now)} of the dense MACs for this sound.`;
    this.text.textContent = text;
    this.canvas.setAttribute("aria-label", text);
  }
}

// Settings that were measured alike share a point.
function together(points) {
  const found = new Map();
  for (const point of points) {
    const key = `${point.accuracy.toFixed(2)} ${point.macs_percent.toFixed(2)}`;
    if (found.has(key)) found.get(key).names += `, ${point.name}`;
    else found.set(key, { point, names: point.name });
  }
  return found.values();
}

const named = (settings) => Object.entries(settings).map(([name, point]) => ({ name, ...point }));

// Without curves: the profiles that were measured on the same clips as the first, and dense.
function profiles({ profiles }) {
  const known = Object.entries(profiles)
    .map(([name, { measured }]) => ({ name, ...measured }))
    .filter(({ accuracy, macs_percent }) => Number.isFinite(accuracy) && Number.isFinite(macs_percent));
  const same = known.filter((point) => point.dense_accuracy === known[0].dense_accuracy);
  const dense = same[0]?.dense_accuracy;
  return Number.isFinite(dense) ? [...same, { name: "dense", accuracy: dense, macs_percent: 100 }] : same;
}

// A point between the measured ones of a curve; null outside of them.
function between(curve, factor) {
  const next = curve.findIndex((point) => point.factor >= factor - 1e-9);
  if (next < 0 || (next === 0 && curve[0].factor > factor + 1e-9)) return null;
  const [a, b] = [curve[Math.max(0, next - 1)], curve[next]];
  const share = b.factor > a.factor ? (factor - a.factor) / (b.factor - a.factor) : 0;
  const mix = (key) => a[key] + share * (b[key] - a[key]);
  return { name: "", accuracy: mix("accuracy"), macs_percent: mix("macs_percent") };
}

function axes(context, colours, box, x, y, low, high) {
  context.strokeStyle = colours.line;
  context.fillStyle = colours.soft;
  context.textAlign = "right";
  const step = high - low > 8 ? 2 : high - low > 3 ? 1 : high - low > 1.6 ? 0.5 : 0.2;
  for (let v = Math.ceil(low / step) * step; v <= high; v += step) {
    context.fillText(`${v.toFixed(step < 1 ? 1 : 0)}%`, box.left - 6, y(v) + 4);
    context.beginPath();
    context.moveTo(box.left, y(v));
    context.lineTo(box.right, y(v));
    context.stroke();
  }
  context.textAlign = "center";
  for (const v of [0, 2, 5, 10, 20, 50, 100]) context.fillText(`${v}%`, Math.min(x(v), box.right - 8), box.bottom + 15);
  context.fillText("MACs, of the dense model", (box.left + box.right) / 2, box.bottom + 31);
  context.textAlign = "left";
}

function line(context, colours, points, x, y, isChosen, name, taken) {
  context.strokeStyle = isChosen ? colours.accent : colours.soft;
  context.lineWidth = isChosen ? 2 : 1.2;
  context.globalAlpha = isChosen ? 1 : 0.6;
  context.beginPath();
  points.forEach((point, i) => context[i ? "lineTo" : "moveTo"](x(point.macs_percent), y(point.accuracy)));
  context.stroke();
  context.globalAlpha = 1;
  context.lineWidth = 1;
  const [first] = points; // of the smallest thresholds
  const half = context.measureText(name).width / 2;
  const [at, below] = [x(first.macs_percent), y(first.accuracy) + 18];
  taken.push([at - half, at + half, below]);
  context.fillStyle = isChosen ? colours.accent : colours.soft;
  context.textAlign = "center";
  context.fillText(name, at, below);
  context.textAlign = "left";
}

// Names avoid each other: each takes the first place that is free.
function dot(context, colours, x, y, name, box, taken, isChosen) {
  context.fillStyle = name === "dense" ? colours.soft : colours.accent;
  context.beginPath();
  context.arc(x, y, isChosen ? 7 : 4.5, 0, 7);
  context.fill();
  context.fillStyle = isChosen ? colours.text : colours.soft;
  context.font = `${isChosen ? 600 : 400} 11.5px system-ui, sans-serif`;
  const w = context.measureText(name).width;
  const places = [[-w / 2, -11], [-w / 2, 20], [10, -11], [-w - 10, -11], [10, 18], [-w - 10, 18], [-w - 10, 4], [10, -25], [-w - 10, -25]].map(([dx, dy]) => [x + dx, y + dy]);
  const isFree = ([a, b]) => a > box.left && a + w < box.right && !taken.some(([l, r, t]) => a < r && a + w > l && Math.abs(b - t) < 13);
  const [a, b] = places.find(isFree) ?? places[0];
  taken.push([a, a + w, b], [x - 5, x + 5, y + 4]);
  context.lineWidth = 3;
  context.strokeStyle = colours.card;
  context.strokeText(name, a, b);
  context.fillText(name, a, b);
  context.lineWidth = 1;
  context.font = "11.5px system-ui, sans-serif";
}
