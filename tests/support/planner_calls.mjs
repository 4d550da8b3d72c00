/* node planner_calls.mjs BINARIES < REQUESTS > ANSWERS
 *
 * Let the planner of BINARIES/planner.js search once per request: {level: map layout as base64, inputs: list of bytes,
 * settings}; an answer has the inputs as a list, and the time of the search.
 */
import { readFileSync } from "node:fs";

const { findRun } = await import(`${process.argv[2]}/planner.js`);
const { levelFromBytes } = await import(`${process.argv[2]}/level.js`);
const answers = [];
for (const { level, inputs, settings } of JSON.parse(readFileSync(0))) {
  const began = performance.now();
  const request = { level: levelFromBytes(Buffer.from(level, "base64")), inputs, ...settings };
  const found = await findRun(request);
  answers.push({ ...found, inputs: [...(found.inputs ?? [])], milliseconds: performance.now() - began });
}
console.log(JSON.stringify(answers));
