// Runs a WebAssembly program: node --no-warnings run_wasi.mjs PROGRAM
import { readFileSync } from "node:fs";
import { WASI } from "node:wasi";

const program = process.argv[2];
const wasi = new WASI({ version: "preview1", args: [program] });
const module = await WebAssembly.compile(readFileSync(program));
process.exitCode = wasi.start(await WebAssembly.instantiate(module, wasi.getImportObject()));
