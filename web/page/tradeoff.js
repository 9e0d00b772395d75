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

  /** The share of the MACs that the computed windows of the present sound took. */
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
    const here = this.#here();
    const isChosen = (count) => count === String(this.state.count);
    context.save();
    context.beginPath();
    context.rect(0, 0, width, box.bottom);
    context.clip();
    for (const [count, points] of lines) line(context, colours, points, x, y, isChosen(count));
    context.restore();
    const dots = [...together(this.points)].map(({ point, names }) => ({ point, name: names, isChosen: !!here?.name && names.split(", ").includes(here.name) }));
    if (here && !here.name) dots.push({ point: here, name: `×${this.state.factor.toFixed(2)}`, isChosen: true });
    const taken = dots.map(({ point }) => [x(point.macs_percent) - 6, x(point.macs_percent) + 6, y(point.accuracy) + 4]);
    for (const { point, name, isChosen } of dots) dot(context, colours, x(point.macs_percent), y(point.accuracy), name === "dense", isChosen);
    dots.sort((a, b) => b.isChosen - a.isChosen);
    for (const { point, name, isChosen } of dots) write(context, isChosen ? colours.text : colours.soft, colours.card, x(point.macs_percent), y(point.accuracy), name, box, taken, isChosen);
    // The name of a line stands at its end of the smallest thresholds.
    for (const [count, [first]] of lines) write(context, isChosen(count) ? colours.accent : colours.soft, colours.card, x(first.macs_percent), y(first.accuracy), `${count === "6" ? "six" : "eight"} sites`, box, taken);
    this.#caption(here);
  }

  #caption(here) {
    const source = this.curves ?? this.points[0];
    let text = source ? `Measured on ${source.clips?.toLocaleString("en") ?? "its test"} clips.` : "Nothing was measured for this model.";
    if (this.curves) text += ` The lines: all thresholds of ${this.curves.base} times ${this.curves.factors[0]} to ${this.curves.factors.at(-1)}.`;
    if (here) text += ` ${here.name || "Here"}: ${percent(here.accuracy, 2)} right with ${percent(here.macs_percent)} of the MACs.`;
    else if (this.state.count) text += " The accuracy of these thresholds was not measured.";
    if (this.now !== undefined) text += ` The orange line: ${percent(this.now)} for a computed window of this sound.`;
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
  const isNarrow = box.right - box.left < 360;
  for (const v of isNarrow ? [0, 5, 20, 50, 100] : [0, 2, 5, 10, 20, 50, 100]) context.fillText(`${v}%`, Math.min(x(v), box.right - 8), box.bottom + 15);
  context.fillText("MACs, of the dense model", (box.left + box.right) / 2, box.bottom + 31);
  context.textAlign = "left";
}

function line(context, colours, points, x, y, isChosen) {
  context.strokeStyle = isChosen ? colours.accent : colours.soft;
  context.lineWidth = isChosen ? 2 : 1.2;
  context.globalAlpha = isChosen ? 1 : 0.6;
  context.beginPath();
  points.forEach((point, i) => context[i ? "lineTo" : "moveTo"](x(point.macs_percent), y(point.accuracy)));
  context.stroke();
  context.globalAlpha = 1;
  context.lineWidth = 1;
}

function dot(context, colours, x, y, isDense, isChosen) {
  context.fillStyle = isDense ? colours.soft : colours.accent;
  context.beginPath();
  context.arc(x, y, isChosen ? 7 : 4.5, 0, 7);
  context.fill();
}

// Writes a name beside a point, at the first place that covers no dot and no other name. Where there
// is none, the name is left out.
function write(context, colour, rim, x, y, name, box, taken, isBold = false) {
  context.font = `${isBold ? 600 : 400} 11.5px system-ui, sans-serif`;
  const w = context.measureText(name).width;
  const places = [[-w / 2, -11], [-w / 2, 20], [10, -11], [-w - 10, -11], [10, 18], [-w - 10, 18], [-w - 10, 4], [10, -25], [-w - 10, -25]].map(([dx, dy]) => [x + dx, y + dy]);
  const isFree = ([a, b]) => a > box.left && a + w < box.right && !taken.some(([l, r, t]) => a < r && a + w > l && Math.abs(b - t) < 13);
  const place = places.find(isFree);
  if (place) {
    taken.push([place[0], place[0] + w, place[1]]);
    context.lineWidth = 3;
    context.strokeStyle = rim;
    context.strokeText(name, ...place);
    context.fillStyle = colour;
    context.fillText(name, ...place);
    context.lineWidth = 1;
  }
  context.font = "11.5px system-ui, sans-serif";
}
