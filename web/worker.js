// The model in a thread of its own. A message is {id, call, values}; the answer has the same id.
import { makeCalls } from "./calls.js";
// Named here too, so that all of them are asked for at once.
import "./engine.js";
import "./model.js";
import "./resample.js";
import "./setting.js";
import "./stream.js";

const calls = makeCalls();

onmessage = async ({ data: { id, call, values } }) => {
  try {
    postMessage({ id, result: await calls[call](values) });
  } catch (error) {
    postMessage({ id, error: error.message });
  }
};
