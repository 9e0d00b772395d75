// Sliders for the thresholds.
import { make } from "./draw.js";
import { SITES, SITE_NAMES } from "./grid.js";
import { Tradeoff } from "./tradeoff.js";

const MOST = 4; // times the profile's threshold
const ALL = "all"; // the slider that moves the others

export class Thresholds {
  /** `onChange` gets a setting after the user has moved something. */
  constructor(root, { canvas, text, radios, onChange }) {
    Object.assign(this, { root, radios, onChange });
    this.tradeoff = new Tradeoff(canvas, text);
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
    this.tradeoff.setup(document);
    this.#show();
  }

  // A dense setting has no thresholds to scale: take those of the default or of the first profile.
  #fallback() {
    const { setting, thresholds, front_end, profiles } = this.document;
    if (thresholds) return { name: setting, thresholds, front_end };
    const [first] = Object.entries(profiles);
    return first ? { name: first[0], ...first[1] } : null;
  }

  #build() {
    this.inputs = {};
    const slider = (site, name, title, onInput) => {
      const id = `slider-${site}`;
      const input = make("input", { type: "range", id, min: 0, max: MOST, step: 0.05, value: 1 });
      const output = make("output", { htmlFor: id });
      input.addEventListener("input", () => {
        onInput(input.valueAsNumber);
        this.#changed();
      });
      this.inputs[site] = { input, output };
      return make("div", { className: `slider ${site}` }, make("label", { htmlFor: id, title }, name), input, output);
    };
    const setAll = (factor) => SITES.forEach((site) => (this.factors[site] = factor));
    this.root.replaceChildren(
      slider(ALL, "all together", "all thresholds of the profile times the same factor", setAll),
      ...SITES.map((site) => slider(site, ...SITE_NAMES[site], (factor) => (this.factors[site] = factor))),
    );
  }

  // The sites that have thresholds now.
  #sites() {
    return SITES.slice(0, this.count).filter((site) => this.base?.thresholds[site] !== undefined);
  }

  // The factor of all of them, or null.
  #common() {
    const factors = new Set(this.#sites().map((site) => this.factors[site]));
    return factors.size === 1 ? [...factors][0] : null;
  }

  #changed() {
    this.count = Number(this.radios.find((radio) => radio.checked)?.value ?? 0);
    this.name = this.count ? "" : "dense";
    const scaled = (value, factor) => (Array.isArray(value) ? value.map((one) => one * factor) : value * factor);
    const thresholds = Object.fromEntries(this.#sites().map((site) => [site, scaled(this.base.thresholds[site], this.factors[site])]));
    const front_end = this.setting.front_end;
    this.setting = { name: this.count ? "custom" : "dense", thresholds: this.count ? thresholds : null, front_end };
    this.#show();
    this.onChange(this.setting);
  }

  #show() {
    for (const radio of this.radios) radio.checked = Number(radio.value) === this.count;
    const sites = this.#sites();
    for (const site of SITES) {
      const isOn = sites.includes(site);
      const value = `${shown(mean(this.base?.thresholds[site]) * this.factors[site])}`;
      this.#tell(site, isOn, this.factors[site], isOn ? `${value} (×${this.factors[site].toFixed(2)})` : "dense", `mean threshold ${value}`);
    }
    const common = this.#common();
    this.#tell(ALL, this.count > 0, common, !this.count ? "dense" : common === null ? "each its own" : `×${common.toFixed(2)}`, `times ${common}`);
    const isBase = this.base && this.base.name === this.document.curves?.base;
    this.tradeoff.show({ name: this.name, count: this.count, factor: isBase ? common : null });
  }

  #tell(site, isOn, factor, text, spoken) {
    const { input, output } = this.inputs[site];
    input.disabled = !isOn;
    if (factor !== null) input.valueAsNumber = factor;
    output.textContent = text;
    input.setAttribute("aria-valuetext", isOn ? spoken : "dense");
  }

  measured(percentage) {
    this.tradeoff.measured(percentage);
  }
  draw() {
    this.tradeoff.draw();
  }
}

function mean(value) {
  if (value === undefined) return 0;
  return Array.isArray(value) ? value.reduce((a, b) => a + b, 0) / value.length : value;
}
const shown = (value) => (value === 0 ? "0" : value < 0.01 ? value.toFixed(4) : value.toFixed(3));
