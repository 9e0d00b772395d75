// Reading a web model: the file that `deltakwt export --target web` writes.
// src/deltakwt/export/web.py describes the format.

const MAGIC = "DKWTWEB\u0002";
const MOST_BYTES = 256 << 20; // no model is larger; a damaged file may claim to be

/** Returns the document and the bytes of the model file of a web model. */
export async function readModel(data) {
  const bytes = await decompress(data);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (bytes.length < 16 || String.fromCharCode(...bytes.subarray(0, 8)) !== MAGIC)
    throw new Error("not a web model; make one with: deltakwt export --target web");
  const documentSize = view.getUint32(8, true);
  const headSize = view.getUint32(12, true);
  const start = 16 + documentSize + headSize;
  if (start > bytes.length || (bytes.length - start) % 2)
    throw new Error("web model: the file is damaged");
  const document = JSON.parse(new TextDecoder().decode(bytes.subarray(16, 16 + documentSize)));
  const count = (bytes.length - start) / 2;
  const isFixed = document.arithmetic === "fixed";
  const file = new Uint8Array(headSize + (isFixed ? 2 : 4) * count);
  file.set(bytes.subarray(16 + documentSize, start));
  (isFixed ? interleave : widen)(bytes.subarray(start, start + count), bytes.subarray(start + count), file, headSize);
  return { document, file };
}

async function decompress(data) {
  const reader = new Blob([data]).stream().pipeThrough(new DecompressionStream("gzip")).getReader();
  const parts = [];
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    size += value.length;
    if (size > MOST_BYTES) throw new Error("web model: the file is too large");
    parts.push(value);
  }
  const bytes = new Uint8Array(size);
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}

// Writes 16-bit integers, given as high and low bytes, to `to` from `offset` on.
function interleave(high, low, to, offset) {
  for (let i = 0, at = offset; i < high.length; i++) {
    to[at++] = low[i];
    to[at++] = high[i];
  }
}

// Writes halves, given as high and low bytes, as 32-bit floats to `to` from `offset` on.
function widen(high, low, to, offset) {
  const out = new DataView(to.buffer, to.byteOffset + offset);
  for (let i = 0; i < high.length; i++) {
    const sign = (high[i] & 0x80) << 24;
    const exponent = (high[i] >> 2) & 31;
    const mantissa = ((high[i] & 3) << 8) | low[i];
    if (exponent) out.setUint32(4 * i, sign | ((exponent + 112) << 23) | (mantissa << 13), true);
    else out.setFloat32(4 * i, (sign ? -1 : 1) * mantissa * 2 ** -24, true);
  }
}
