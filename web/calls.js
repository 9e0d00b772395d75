// What a spotter asks of its model, in a worker or in the thread of the caller.
import { readModel } from "./model.js";
import { Stream } from "./stream.js";

/** Returns the calls by name. `load` must be the first. */
export function makeCalls() {
  let stream;
  return {
    async load({ module, model, setting }) {
      const known = await readModel(model);
      stream = new Stream(module, known, setting);
      const { config, hop, denseMacs, arithmetic } = stream.engine;
      return { document: known.document, config, hop, denseMacs, arithmetic };
    },
    setting({ setting }) {
      stream.setting = setting;
      return stream.setting;
    },
    push: ({ block, rate }) => stream.push(block, rate),
    flush: () => stream.flush(),
    reset: () => stream.reset(),
    explain: ({ samples, setting, trace }) => stream.explain(samples, setting, trace),
    spot: ({ samples, setting }) => stream.spot(samples, setting),
  };
}
