// Sliders for the thresholds, and the accuracy that was measured for the profiles.
import { make, palette, percent, prepare } from "./draw.js";
import { SITES, SITE_NAMES } from "./grid.js";

const MOST = 4; // times the profile's threshold

export class Thresholds {
  /** `onChange` gets a setting after the user has moved something. */
  constructor(root, { canvas, text, radios, onChange }) {
    Object.assign(this, { root, canvas, text, radios, onChange });
    for (const radio of radios) radio.addEventListener("change", () => this.#changed());
  }

  /** Shows a model with one of its settings. */
  setup(document, setting) {
    this.document = document;
    this.base = setting.thresholds ? setting : this.#fallback();
    this.name = setting.name;
    this.setting = setting;
    this.factors = Object.fromEntries(SITES.map((site) => [site, 1]));
    const hasMlp = this.base?.thresholds.mlp_in !== undefined || this.base?.thresholds.mlp_hidden !== undefined;
    this.count = !setting.thresholds ? 0 : hasMlp ? 8 : 6;
    this.#build();
    this.#show();
  }

  // A dense setting has no thresholds to scale: take those of the default or of the first profile.
  #fallback() {
    const { thresholds, front_end, profiles } = this.document;
    return thresholds ? { thresholds, front_end } : (Object.values(profiles)[0] ?? null);
  }

  #build() {
    this.inputs = {};
    this.root.replaceChildren(
      ...SITES.map((site) => {
        const id = `slider-${site}`;
        const input = make("input", { type: "range", id, min: 0, max: MOST, step: 0.05, value: 1 });
        const output = make("output", { htmlFor: id });
        input.addEventListener("input", () => {
          this.factors[site] = input.valueAsNumber;
          this.#changed();
        });
        this.inputs[site] = { input, output };
        const label = make("label", { htmlFor: id, title: SITE_NAMES[site][1] }, SITE_NAMES[site][0]);
        return make("div", { className: "slider" }, label, input, output);
      }),
    );
  }

  #changed() {
    const chosen = this.radios.find((radio) => radio.checked);
    this.count = Number(chosen?.value ?? 0);
    this.name = "";
    const thresholds = {};
    for (const site of SITES.slice(0, this.count)) {
      const value = this.base?.thresholds[site];
      if (value === undefined) continue;
      const factor = this.factors[site];
      thresholds[site] = Array.isArray(value) ? value.map((one) => one * factor) : value * factor;
    }
    const front_end = this.setting.front_end;
    this.setting = { name: this.count ? "custom" : "dense", thresholds: this.count ? thresholds : null, front_end };
    this.#show();
    this.onChange(this.setting);
  }

  #show() {
    for (const radio of this.radios) radio.checked = Number(radio.value) === this.count;
    SITES.forEach((site, i) => {
      const { input, output } = this.inputs[site];
      const value = this.base?.thresholds[site];
      input.disabled = i >= this.count || value === undefined;
      const mean = mean_(value) * this.factors[site];
      output.textContent = input.disabled ? "dense" : `${shown(mean)} (×${this.factors[site].toFixed(2)})`;
      input.setAttribute("aria-valuetext", input.disabled ? "dense" : `mean threshold ${shown(mean)}`);
    });
    this.draw();
  }

  /** The share of dense MACs of the present sound, for the picture. */
  measured(macsPercent) {
    this.now = macsPercent;
    this.draw();
  }

  draw() {
    if (this.pending || !this.document) return;
    this.pending = true;
    requestAnimationFrame(() => {
      this.pending = false;
      this.#draw();
    });
  }

  #points() {
    return Object.entries(this.document.profiles)
      .map(([name, { measured }]) => ({ name, ...measured }))
      .filter(({ accuracy, macs_percent }) => Number.isFinite(accuracy) && Number.isFinite(macs_percent));
  }

  #draw() {
    const { context, width, height } = prepare(this.canvas);
    const colours = palette();
    const points = this.#points();
    const dense = points.find((point) => Number.isFinite(point.dense_accuracy))?.dense_accuracy;
    const values = [...points.map((point) => point.accuracy), ...(dense ? [dense] : [])];
    const [low, high] = values.length ? [Math.min(...values) - 0.3, Math.max(...values) + 0.3] : [90, 100];
    const box = { left: 46, right: width - 14, top: 12, bottom: height - 34 };
    const x = (macs) => box.left + (Math.min(macs, 100) / 100) ** 0.5 * (box.right - box.left);
    const y = (accuracy) => box.bottom - ((accuracy - low) / (high - low)) * (box.bottom - box.top);
    axes(context, colours, box, x, y, low, high);
    if (this.now !== undefined) {
      context.fillStyle = colours.mlp;
      context.globalAlpha = 0.75;
      context.fillRect(x(this.now) - 1, box.top, 2, box.bottom - box.top);
      context.globalAlpha = 1;
    }
    if (dense) dot(context, colours, x(100), y(dense), "dense", colours.soft, box, false);
    points.forEach((point, i) => dot(context, colours, x(point.macs_percent), y(point.accuracy), point.name, colours.accent, box, point.name === this.name, i));
    this.#caption(points);
  }

  #caption(points) {
    const here = points.find((point) => point.name === this.name);
    const now = this.now === undefined ? "" : ` The orange line: ${percent(this.now)} of the dense MACs for this sound.`;
    let text = points.length
      ? `Dots: the profiles, measured on ${points[0].clips?.toLocaleString("en") ?? "test"} clips.`
      : "Nothing was measured for the profiles of this model.";
    if (here) text += ` ${here.name}: ${percent(here.accuracy, 2)} right with ${percent(here.macs_percent)} of the MACs.`;
    else if (this.count) text += " The accuracy of these thresholds was not measured.";
    this.text.textContent = text + now;
  }
}

function axes(context, colours, box, x, y, low, high) {
  context.strokeStyle = colours.line;
  context.fillStyle = colours.soft;
  context.textAlign = "right";
  const step = high - low > 4 ? 2 : high - low > 1.6 ? 0.5 : 0.2;
  for (let v = Math.ceil(low / step) * step; v <= high; v += step) {
    context.fillText(`${v.toFixed(1)}%`, box.left - 6, y(v) + 4);
    context.beginPath();
    context.moveTo(box.left, y(v));
    context.lineTo(box.right, y(v));
    context.stroke();
  }
  context.textAlign = "center";
  for (const v of [0, 2, 5, 10, 20, 50, 100]) context.fillText(`${v}%`, Math.min(x(v), box.right - 8), box.bottom + 15);
  context.fillText("MACs, of the dense model", (box.left + box.right) / 2, box.bottom + 30);
  context.textAlign = "left";
}

function dot(context, colours, x, y, name, colour, box, isChosen, number = 0) {
  context.fillStyle = colour;
  context.beginPath();
  context.arc(x, y, isChosen ? 7 : 4.5, 0, 7);
  context.fill();
  context.fillStyle = isChosen ? colours.text : colours.soft;
  context.font = `${isChosen ? 600 : 400} 11.5px system-ui, sans-serif`;
  const w = context.measureText(name).width;
  const left = x + 10 + w > box.right || number % 2 === 1;
  context.fillText(name, left ? x - w - 10 : x + 10, y + 4);
}

function mean_(value) {
  if (value === undefined) return 0;
  return Array.isArray(value) ? value.reduce((a, b) => a + b, 0) / value.length : value;
}
const shown = (value) => (value === 0 ? "0" : value < 0.01 ? value.toFixed(4) : value.toFixed(3));
