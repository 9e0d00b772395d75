// What all pictures share: sizes, colours, scales.

const STOPS = {
  light: [[255, 255, 255], [205, 224, 242], [105, 168, 219], [28, 96, 168], [12, 34, 78]],
  dark: [[13, 17, 23], [22, 46, 82], [34, 104, 158], [92, 190, 190], [250, 236, 160]],
};

export const isDark = () => document.documentElement.dataset.theme === "dark";

/** The colours of the page, read from its style sheet. */
export function palette() {
  const style = getComputedStyle(document.documentElement);
  const get = (name) => style.getPropertyValue(`--${name}`).trim();
  const names = ["page", "card", "line", "text", "soft", "accent", "wave", "attention", "mlp", "word", "grid", "alert"];
  const colours = Object.fromEntries(names.map((name) => [name, get(name)]));
  return { ...colours, curves: get("curves").split(",").map((colour) => colour.trim()) };
}

/** A colour map as 256 x [r, g, b]. */
export function colourMap(theme = isDark() ? "dark" : "light") {
  const stops = STOPS[theme];
  return Array.from({ length: 256 }, (_, i) => {
    const at = (i / 255) * (stops.length - 1);
    const low = Math.min(stops.length - 2, Math.floor(at));
    return stops[low].map((value, c) => Math.round(value + (at - low) * (stops[low + 1][c] - value)));
  });
}

/** Black or white, whichever is easier to read on a colour: the contrast is at least 4.5. */
export function readable(colour) {
  const [r, g, b] = colour.map((value) => (value <= 10 ? value / 3294 : ((value / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000" : "#fff";
}

export const css = ([r, g, b]) => `rgb(${r} ${g} ${b})`;

/** Returns a context in CSS pixels and the size of the canvas. */
export function prepare(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const { clientWidth: width, clientHeight: height } = canvas;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = "11.5px system-ui, sans-serif";
  return { context, width, height };
}

/** Draws the shape of a sound between two times, smallest to largest sample of each pixel. */
export function drawWave(context, sound, length, t0, t1, x, y, width, height, colour) {
  const middle = y + height / 2;
  let largest = 0.02;
  const columns = Math.max(1, Math.floor(width));
  const low = new Float32Array(columns);
  const high = new Float32Array(columns);
  for (let c = 0; c < columns; c++) {
    const from = Math.max(0, Math.floor((t0 + ((t1 - t0) * c) / columns) * 16000));
    const to = Math.min(length, Math.ceil((t0 + ((t1 - t0) * (c + 1)) / columns) * 16000));
    const step = Math.max(1, Math.floor((to - from) / 400));
    for (let i = from; i < to; i += step) {
      if (sound[i] < low[c]) low[c] = sound[i];
      if (sound[i] > high[c]) high[c] = sound[i];
    }
    largest = Math.max(largest, high[c], -low[c]);
  }
  context.fillStyle = colour;
  for (let c = 0; c < columns; c++) {
    const top = middle - ((high[c] / largest) * height) / 2;
    context.fillRect(x + c, top, 1, Math.max(1, (((high[c] - low[c]) / largest) * height) / 2));
  }
}

/** Draws a picture of bytes (columns, rows; row 0 at the bottom) between two times. */
export function drawBytes(context, bytes, columns, rows, map, x, y, width, height, smooth = true) {
  if (columns < 1) return;
  const image = new ImageData(columns, rows);
  for (let c = 0; c < columns; c++)
    for (let r = 0; r < rows; r++) {
      const [red, green, blue] = map[bytes[c * rows + r]];
      image.data.set([red, green, blue, 255], 4 * ((rows - 1 - r) * columns + c));
    }
  const small = new OffscreenCanvas(columns, rows);
  small.getContext("2d").putImageData(image, 0, 0);
  context.imageSmoothingEnabled = smooth;
  context.drawImage(small, x, y, width, height);
}

export const percent = (value, digits = 1) => `${value.toFixed(value >= 99.95 ? 0 : digits)}%`;
export const seconds = (value) => `${value.toFixed(2)} s`;
export function amount(value) {
  return value >= 1e6 ? `${(value / 1e6).toFixed(1)} M` : value >= 1e3 ? `${(value / 1e3).toFixed(0)} k` : `${value}`;
}

/** Makes an element: text, attributes, children. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes))
    if (name in element && name !== "list") element[name] = value;
    else element.setAttribute(name, value);
  element.append(...children);
  return element;
}
