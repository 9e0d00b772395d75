// What a spotter asks of its model, in a worker or in the thread of the caller.
import { readModel } from "./model.js";
import { Stream } from "./stream.js";

/** Returns the calls by name. `compile` and `load` must be the first two. */
export function makeCalls() {
  let module, stream;
  return {
    compile({ engine }) {
      module = compiled(engine);
      module.catch(() => {}); // `load` tells it
    },
    async load({ model, setting }) {
      const known = await source(model).then(readModel);
      stream = new Stream(await module, known, setting);
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

// Bytes as they are; of an address, its bytes or the answer of the server.
async function source(given) {
  if (typeof given !== "string") return given;
  if (given.startsWith("file:")) return (await import("node:fs/promises")).readFile(new URL(given));
  const answer = await fetch(given);
  if (!answer.ok) throw new Error(`${given}: HTTP ${answer.status}`);
  return answer;
}

// Compiles while the bytes arrive, where the server names their type.
async function compiled(given) {
  if (given instanceof WebAssembly.Module) return given;
  const found = await source(given);
  if (!(found instanceof Response)) return WebAssembly.compile(found);
  if (found.headers.get("Content-Type") === "application/wasm") return WebAssembly.compileStreaming(found);
  return WebAssembly.compile(await found.arrayBuffer());
}
