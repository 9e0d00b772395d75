// The table of layers and sites: which share of the values was kept in one window.
import { colourMap, css, make, percent, readable } from "./draw.js";

export const SITES = ["x", "q", "k", "scores", "softmax", "heads", "mlp_in", "mlp_hidden"];
export const SITE_NAMES = {
  x: ["input", "input of the layer"],
  q: ["Q", "queries"],
  k: ["K", "keys"],
  scores: ["scores", "Q K^T"],
  softmax: ["softmax", "attention weights"],
  heads: ["heads", "softmax V"],
  mlp_in: ["MLP in", "input of the MLP"],
  mlp_hidden: ["MLP hidden", "output of its GELU"],
};

/** Values of a site in one layer. */
export function siteSize(site, { dim, heads, mlp, tokens }) {
  if (site === "scores" || site === "softmax") return tokens * heads * tokens;
  return tokens * (site === "mlp_hidden" ? mlp : dim);
}

export class Grid {
  constructor(table, hint) {
    this.table = table;
    this.hint = hint;
    this.usual = hint.textContent;
  }

  setup(config) {
    this.config = config;
    const head = SITES.map((site) => make("th", { scope: "col", title: SITE_NAMES[site][1] }, SITE_NAMES[site][0]));
    this.cells = [];
    const rows = Array.from({ length: config.layers }, (_, layer) => {
      const cells = SITES.map(() => make("td"));
      this.cells.push(cells);
      return make("tr", {}, make("th", { scope: "row" }, make("span", { className: "wide" }, "layer "), `${layer + 1}`), ...cells);
    });
    this.table.replaceChildren(
      make("caption", { className: "hidden" }, "Share of values kept"),
      make("thead", {}, make("tr", {}, make("td", { className: "corner" }), ...head)),
      make("tbody", {}, ...rows),
    );
  }

  /** Shows a computed window; null empties the table. `isEarlier`: the window at the cursor was not
   * computed, and this one came before it. */
  show(window, isEarlier = false) {
    const map = colourMap();
    const isDense = window && !window.kept;
    const usual = isDense ? "Dense: every value of a window is computed." : this.usual;
    this.hint.textContent = isEarlier ? "The window at the cursor was not computed. This is the computed one before it." : usual;
    this.cells.forEach((cells, layer) =>
      cells.forEach((cell, s) => {
        if (!window) {
          cell.style.backgroundColor = "";
          cell.textContent = "";
          return;
        }
        const kept = window.kept ? window.kept[layer * 9 + s] : siteSize(SITES[s], this.config);
        const share = Math.min(1, kept / siteSize(SITES[s], this.config));
        const level = Math.round(255 * Math.sqrt(share));
        const colour = map[level];
        cell.style.backgroundColor = css(colour);
        cell.style.color = readable(colour);
        cell.textContent = share >= 0.0995 ? percent(100 * share, 0) : percent(100 * share);
      }),
    );
  }
}
