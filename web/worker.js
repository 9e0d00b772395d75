// The model in a thread of its own. A message is {id, call, values}; the answer has the same id.
import { readModel } from "./model.js";
import { Stream } from "./stream.js";

let stream;

const calls = {
  async load({ module, data, setting }) {
    const model = await readModel(data);
    stream = new Stream(module, model, setting);
    return { document: model.document, config: stream.engine.config, hop: stream.engine.hop, denseMacs: stream.engine.denseMacs };
  },
  push: ({ block, rate }) => stream.push(block, rate),
  flush: () => stream.flush(),
  reset: () => stream.reset(),
  setting({ setting }) {
    stream.setting = setting;
    return stream.setting;
  },
  explain: ({ samples, setting, trace }) => stream.explain(samples, setting, trace),
  spot: ({ samples, setting }) => stream.spot(samples, setting),
};

onmessage = async ({ data: { id, call, values } }) => {
  try {
    postMessage({ id, result: await calls[call](values) });
  } catch (error) {
    postMessage({ id, error: error.message });
  }
};
