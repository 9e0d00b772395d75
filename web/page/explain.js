// Why did it fire? One event: its second of sound, the decision step by step, what the dense model
// says, and how far the thresholds are from losing it.
import { colourMap, drawBytes, drawWave, make, palette, percent, prepare, seconds } from "./draw.js";
import { SITES, SITE_NAMES, siteSize } from "./grid.js";

const FACTORS = [1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32];
const SMALLER = [0.5, 0.25, 0]; // of all thresholds; with 0 nothing is skipped
const BEFORE = 2.5; // seconds of sound before the event with which it is tried again
const AFTER = 0.6;

export class Explain {
  constructor(root) {
    this.root = root;
    this.run = 0; // number of the newest explanation: older ones stop
  }

  close() {
    this.run++;
    this.root.hidden = true;
    this.root.replaceChildren();
  }

  async show(event, record, spotter) {
    const run = ++this.run;
    Object.assign(this, { event, record, spotter });
    this.root.hidden = false;
    const close = make("button", { type: "button", className: "close" }, "Close");
    close.addEventListener("click", () => this.close());
    const parts = {
      second: make("canvas", { className: "second", role: "img" }),
      tokens: make("canvas", { className: "tokens", role: "img" }),
      steps: make("ol"),
      dense: make("table", { className: "facts" }),
      limits: make("table", { className: "facts" }),
      limitsText: make("p", { className: "hint" }, "Trying other thresholds…"),
      tokensText: make("p", { className: "hint" }),
    };
    this.parts = parts;
    const title = make("h2", { id: "explain-title" }, `Why did “${event.label}” fire at ${seconds(event.start)}?`);
    this.root.replaceChildren(
      make("div", { className: "title" }, title, close),
      make(
        "div",
        { className: "parts" },
        part("Its second of sound, and the posteriors around it", parts.second, make("p", { className: "hint" }, "Shaded: the window that fired. Thin line: the posterior of each window, drawn at its end; thick: their average, which the rule sees. Upright line: decided.")),
        part("The decision, step by step", parts.steps),
        part("The deltas of every token and layer", parts.tokens, parts.tokensText),
        make("div", { className: "stack" }, part("What the dense model says", parts.dense, make("p", { className: "hint" }, "Even the dense run saves a little: of the last layer only what the class token needs is computed.")), part("What it would take to lose it", parts.limitsText, parts.limits)),
      ),
    );
    this.#steps();
    this.draw();
    this.root.focus();
    this.root.scrollIntoView({ block: "nearest" });
    await this.#compare(run);
    if (run === this.run) await this.#limits(run);
  }

  draw() {
    if (this.root.hidden) return;
    this.#second();
    if (this.delta) this.#tokens();
  }

  get label() {
    return this.spotter.labels.indexOf(this.event.label);
  }

  #second() {
    const { context, width, height } = prepare(this.parts.second);
    const { event, record, label } = this;
    const colours = palette();
    const t0 = Math.max(0, event.window - 0.5);
    const t1 = Math.max(event.window + 1.5, t0 + 2);
    const x = (time) => ((time - t0) / (t1 - t0)) * width;
    context.fillStyle = colours.accent;
    context.globalAlpha = 0.1;
    context.fillRect(x(event.window), 0, x(event.window + 1) - x(event.window), height);
    context.globalAlpha = 1;
    drawWave(context, record.sound, record.samples, t0, t1, 0, 4, width, height * 0.34, colours.wave);
    const y = (value) => height - 18 - value * height * 0.5;
    const { on, off, words } = this.spotter.document.decision;
    for (const [name, value] of [["on", words?.[event.label] ?? on], ["off", off]]) {
      context.strokeStyle = colours.line;
      context.setLineDash([4, 4]);
      context.beginPath();
      context.moveTo(0, y(value));
      context.lineTo(width, y(value));
      context.stroke();
      context.setLineDash([]);
      context.fillStyle = colours.soft;
      context.fillText(`${name} ${value}`, 4, y(value) - 3);
    }
    const near = record.windows.filter((window) => window.start + 1 >= t0 && window.start + 1 <= t1);
    const curve = (value, colour, line) => {
      context.strokeStyle = colour;
      context.lineWidth = line;
      context.beginPath();
      near.forEach((window, i) => context[i ? "lineTo" : "moveTo"](x(window.start + 1), y(value(window))));
      context.stroke();
      context.lineWidth = 1;
    };
    curve((window) => raw(window.logits, label), colours.soft, 1);
    curve((window) => window.scores[label], colours.word, 2.5);
    for (const window of near) {
      context.fillStyle = colours.word;
      context.beginPath();
      context.arc(x(window.start + 1), y(window.scores[label]), 3, 0, 7);
      context.fill();
    }
    context.fillStyle = colours.accent;
    context.fillRect(x(event.time), 0, 1.5, height - 16);
    context.fillStyle = colours.soft;
    context.textAlign = "center";
    for (let t = Math.ceil(t0 * 2) / 2; t < t1; t += 0.5) context.fillText(`${t.toFixed(1)} s`, Math.max(16, x(t)), height - 3);
    context.textAlign = "left";
    this.parts.second.setAttribute("aria-label", `Smoothed posterior of ${event.label}: up to ${event.score.toFixed(2)}; decided at ${seconds(event.time)}.`);
  }

  #steps() {
    const { event, record, label, spotter } = this;
    const { on, off, smooth, patience, refractory, words } = spotter.document.decision;
    const level = words?.[event.label] ?? on;
    const peak = record.windows.findIndex((window) => Math.abs(window.start - event.window) < 1e-6);
    let first = peak;
    while (first > 0 && record.windows[first - 1].scores[label] >= off) first--;
    let candidate = first;
    while (candidate < peak && record.windows[candidate].scores[label] < level) candidate++;
    const end = (number) => seconds((record.windows[number]?.start ?? event.window) + 1);
    const lines = [`Every ${Math.round(spotter.hop * 1000)} ms the newest second becomes a window, and the posteriors of ${smooth} windows are averaged (the square of the mean of their square roots).`];
    if (event.score < level) {
      lines.push(`The sound has at most one second, so its only window decides: “${event.label}” has the highest posterior, ${event.score.toFixed(3)}, and that reaches off (${off}).`);
    } else {
      lines.push(`With the sound up to ${end(first)}, “${event.label}” reaches off (${off}): the word is in the window.`);
      lines.push(`With the sound up to ${end(candidate)}, it reaches on (${level}) and becomes the candidate.`);
      const wait = patience ? `${patience} window${patience === 1 ? "" : "s"} later there is no better candidate.` : "The rule does not wait for a better candidate.";
      lines.push(`${wait} The best window ends at ${end(peak)}, with ${event.score.toFixed(3)}.`);
      lines.push(`Decided at ${seconds(event.time)}. The word lies between ${seconds(event.start)} and ${seconds(event.end)}; no other word can follow within ${refractory} s.`);
    }
    this.parts.steps.replaceChildren(...lines.map((line) => make("li", {}, line)));
  }

  async #compare(run) {
    const { event, record, spotter, parts } = this;
    const clip = record.second(event.window);
    const now = spotter.setting.thresholds ? spotter.setting : { thresholds: {}, front_end: spotter.setting.front_end };
    const delta = await spotter.explain(clip, { setting: now, trace: true });
    const dense = await spotter.explain(clip, { setting: { name: "dense", thresholds: null, front_end: spotter.setting.front_end } });
    if (run !== this.run) return;
    this.delta = delta;
    const other = (scores) => {
      const order = [...scores.keys()].sort((a, b) => scores[b] - scores[a]);
      return `${spotter.labels[order[1]].replaceAll("_", "")} ${scores[order[1]].toFixed(3)}`;
    };
    const row = (name, one) =>
      make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, `${one.label} ${one.score.toFixed(3)}`), make("td", {}, other(one.scores)), make("td", {}, percent(one.macsPercent)));
    parts.dense.replaceChildren(head("says", "then", "MACs"), row("deltas", delta), row("dense", dense));
    this.#tokens();
  }

  // A column for every token, a row for every layer; darker: more of its values were computed.
  #tokens() {
    const { context, width, height } = prepare(this.parts.tokens);
    const { layers, tokens } = this.spotter.config;
    const colours = palette();
    const total = SITES.reduce((sum, site) => sum + siteSize(site, this.spotter.config) / tokens, 0);
    const bytes = new Uint8Array(tokens * layers);
    for (let t = 0; t < tokens; t++)
      for (let layer = 0; layer < layers; layer++) {
        let kept = 0;
        for (let s = 0; s < SITES.length; s++) kept += this.delta.kept[(s * layers + layer) * tokens + t];
        bytes[t * layers + (layers - 1 - layer)] = Math.min(255, 255 * Math.sqrt(kept / total));
      }
    const wave = height * 0.2;
    const first = width / tokens; // the class token stands before the sound
    drawWave(context, this.record.second(this.event.window), 16000, 0, 1, first, 0, width - first, wave - 6, colours.wave);
    drawBytes(context, bytes, tokens, layers, colourMap(), 0, wave, width, height - wave, false);
    this.parts.tokens.setAttribute("aria-label", `Kept deltas of ${tokens} tokens in ${layers} layers.`);
    this.parts.tokensText.textContent = `From left to right the ${tokens} tokens (class token and ${10 * this.spotter.config.stride} ms steps), from top to bottom the ${layers} layers. The more a token stands out, the more of it was computed; the others hardly differ from the one before.`;
  }

  async #limits(run) {
    const { event, record, spotter, parts } = this;
    const { on, words } = spotter.document.decision;
    const row = (...cells) => make("tr", {}, make("th", { scope: "row" }, cells[0]), ...cells.slice(1).map((cell) => make("td", {}, cell)));
    const rows = [head("now", "no longer found")];
    rows.push(row("decision: on", `${words?.[event.label] ?? on}`, `above ${event.score.toFixed(3)}`));
    parts.limits.replaceChildren(...rows);
    const { thresholds, front_end } = spotter.setting;
    if (!thresholds) {
      parts.limitsText.textContent = "The model runs densely: there are no delta thresholds to change.";
      return;
    }
    const from = Math.max(0, Math.floor((event.time - BEFORE) * 10) / 10);
    const sound = record.sound.slice(from * 16000, Math.min(record.samples, Math.ceil((event.time + AFTER) * 16000)));
    const fires = async (sites, factor) => {
      const scaled = Object.fromEntries(Object.entries(thresholds).map(([site, value]) => [site, sites.includes(site) ? times(value, factor) : value]));
      const { events } = await spotter.spot(sound, { setting: { thresholds: scaled, front_end } });
      return events.some((one) => one.label === event.label && Math.abs(one.start + from - event.start) < 0.6);
    };
    if (!(await fires([], 1))) {
      parts.limitsText.textContent = "The event depends on sound that came earlier, so thresholds cannot be tried on this part alone.";
      return;
    }
    const first = async (sites, factors) => {
      for (const factor of factors) if (run === this.run && !(await fires(sites, factor))) return factor;
      return null;
    };
    const all = Object.keys(thresholds);
    for (const [name, sites] of [["all thresholds", all], ...all.map((site) => [SITE_NAMES[site]?.[0] ?? site, [site]])]) {
      const found = await first(sites, FACTORS);
      if (run !== this.run) return;
      const now = sites === all ? null : mean(thresholds[sites[0]]);
      const text = found === null ? `not up to ×${FACTORS.at(-1)}` : `×${found}${now === null ? "" : `: ${figure(now * found)}`}`;
      rows.push(row(name, now === null ? "×1" : figure(now), text));
      parts.limits.replaceChildren(...rows);
    }
    const smaller = await first(all, SMALLER);
    if (run !== this.run) return;
    parts.limitsText.textContent =
      "The nearest tried factors of the thresholds (means over the layers) at which this word is no longer found. " +
      (smaller === null ? "With all thresholds smaller, down to 0, it is found too." : `It is also lost with all thresholds times ${smaller}: the deltas helped it.`);
  }
}

const head = (...names) => make("tr", {}, make("td"), ...names.map((name) => make("th", { scope: "col" }, name)));

function part(title, ...content) {
  return make("div", {}, make("h3", {}, title), ...content);
}
const mean = (value) => (Array.isArray(value) ? value.reduce((a, b) => a + b, 0) / value.length : value);
const figure = (value) => Number(value.toPrecision(3)).toString();
const times = (value, factor) => (Array.isArray(value) ? value.map((one) => one * factor) : value * factor);
function raw(logits, label) {
  const top = Math.max(...logits);
  let sum = 0;
  for (const logit of logits) sum += Math.exp(logit - top);
  return Math.exp(logits[label] - top) / sum;
}
