// How a model is run: thresholds by site and the front end. src/deltakwt/core/setting.py is the
// description of both.

export const SITES = ["x", "q", "k", "scores", "softmax", "heads", "mlp_in", "mlp_hidden", "v"];
export const PRODUCTS = ["xw", "qkt", "sv", "proj", "mlp_in", "mlp_out"];
const PLAIN = { smooth: false, floor: 0, quantile: 0.2 };

/** Returns {name, thresholds, front_end} for the name of a profile, "dense", the paper's form
 * "0.2_0.2_0.2_0.05_0.001_0.05", or an object with `thresholds` and `front_end`. */
export function resolveSetting(document, wanted) {
  if (wanted === undefined || wanted === null)
    return { name: document.setting, thresholds: document.thresholds, front_end: document.front_end };
  if (wanted === "dense") return { name: "dense", thresholds: null, front_end: PLAIN };
  if (typeof wanted === "string") {
    const profile = document.profiles[wanted];
    if (profile) return { name: wanted, ...pick(profile) };
    if (/^[-\d.,_e]+$/.test(wanted))
      return { name: wanted, thresholds: parseThresholds(wanted), front_end: PLAIN };
    const known = [...Object.keys(document.profiles), "dense"].join(", ");
    throw new Error(`setting "${wanted}": this model has ${known}`);
  }
  const thresholds = typeof wanted.thresholds === "string" ? parseThresholds(wanted.thresholds) : wanted.thresholds;
  return { name: wanted.name ?? "", thresholds: thresholds ?? null, front_end: { ...PLAIN, ...wanted.front_end } };
}

function pick({ thresholds, front_end }) {
  return { thresholds, front_end };
}

/** Reads 6, 8 or 9 values separated by "_"; "-" leaves a site dense, commas give one per layer. */
export function parseThresholds(text) {
  const parts = text.trim().split("_");
  if (![6, 8, 9].includes(parts.length)) throw new Error(`thresholds "${text}": give 6, 8 or 9 values`);
  const found = {};
  parts.forEach((part, i) => {
    if (part === "-") return;
    const numbers = part.split(",").map(Number);
    if (!numbers.every((n) => n >= 0 && Number.isFinite(n))) throw new Error(`thresholds: "${part}" is not a number`);
    found[SITES[i]] = numbers.length > 1 ? numbers : numbers[0];
  });
  return found;
}

/** Returns (layers * 9) thresholds, -1 where a site is dense. */
export function thresholdTable(thresholds, layers) {
  const table = new Float32Array(layers * SITES.length).fill(-1);
  for (const [site, value] of Object.entries(thresholds)) {
    const column = SITES.indexOf(site);
    if (column < 0) throw new Error(`thresholds: unknown site "${site}"`);
    if (Array.isArray(value) && value.length !== layers)
      throw new Error(`threshold ${site}: ${value.length} values for ${layers} layers`);
    for (let layer = 0; layer < layers; layer++) {
      const one = Array.isArray(value) ? value[layer] : value;
      if (!(one >= 0 && Number.isFinite(one))) throw new Error(`threshold ${site} = ${one}: must be at least 0`);
      table[layer * SITES.length + column] = one;
    }
  }
  return table;
}
