// Sound files to samples of 16 kHz.

const RATE = 16000;

/** Returns the samples of a sound file, all channels mixed. */
export async function decode(data) {
  const plain = readWav(data);
  if (plain) return plain;
  const decoded = await new OfflineAudioContext(1, 1, RATE).decodeAudioData(data);
  const mono = new Float32Array(decoded.length);
  for (let c = 0; c < decoded.numberOfChannels; c++) {
    const channel = decoded.getChannelData(c);
    for (let i = 0; i < mono.length; i++) mono[i] += channel[i] / decoded.numberOfChannels;
  }
  return mono;
}

/** Returns the samples of a 16-bit WAV file of one channel and 16 kHz, which needs no decoder; null for
 * anything else. */
export function readWav(data) {
  const view = new DataView(data);
  const text = (at) => String.fromCharCode(...new Uint8Array(data, at, 4));
  if (data.byteLength < 44 || text(0) !== "RIFF" || text(8) !== "WAVE") return null;
  let isPlain = false;
  for (let at = 12; at + 8 <= data.byteLength; ) {
    const size = view.getUint32(at + 4, true);
    if (text(at) === "fmt " && size >= 16 && at + 24 <= data.byteLength) {
      const [kind, channels] = [view.getUint16(at + 8, true), view.getUint16(at + 10, true)];
      isPlain = kind === 1 && channels === 1 && view.getUint32(at + 12, true) === RATE && view.getUint16(at + 22, true) === 16;
    }
    if (text(at) === "data" && isPlain) {
      const count = Math.min(size, data.byteLength - at - 8) >> 1;
      return Float32Array.from({ length: count }, (_, i) => view.getInt16(at + 8 + 2 * i, true) / 32768);
    }
    at += 8 + size + (size % 2);
  }
  return null;
}
