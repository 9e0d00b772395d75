// Collects the microphone's samples into blocks of about 50 ms and posts them.
class Blocks extends AudioWorkletProcessor {
  constructor() {
    super();
    this.block = new Float32Array(Math.round(sampleRate / 20));
    this.filled = 0;
  }

  process([channels]) {
    const count = channels.length;
    for (let i = 0; count && i < channels[0].length; i++) {
      let value = 0;
      for (const channel of channels) value += channel[i];
      this.block[this.filled++] = value / count;
      if (this.filled === this.block.length) {
        this.port.postMessage(this.block.slice());
        this.filled = 0;
      }
    }
    return true;
  }
}

registerProcessor("deltakwt-blocks", Blocks);
