/* node page_documents.mjs CASES.json
 *
 * For each case {map: base64, about, inputs: base64, delay}, print the level and the runs that the page computes, as JSON.
 */
import { readFileSync } from "node:fs";
import { difference } from "../../nppsim/studio/static/js/differences.js";
import { levelDocument } from "../../nppsim/studio/static/js/documents.js";
import { Recording } from "../../nppsim/studio/static/js/recording.js";
import { Kernels, loadModule } from "../../nppsim/wasm/kernels.js";
import { levelFromBytes } from "../../nppsim/wasm/level.js";

const module = await loadModule("game");
const engine = { module, kernels: new Kernels(module) };
const decoded = (text) => new Uint8Array(Buffer.from(text, "base64"));
const fieldsOf = ({ frames, outcome, inputs, ninjas, looks, changes, entities }) =>
  structuredClone({ frames, outcome, inputs, ninjas, looks, changes, entities });
const worldOf = ({ looks, ninja }) => structuredClone({ looks, ninja });

const results = JSON.parse(readFileSync(process.argv[2])).map((given) => {
  const inputs = decoded(given.inputs);
  const level = levelDocument(engine, levelFromBytes(decoded(given.map)), given.about);
  const run = new Recording(level, { inputs: inputs.slice(0, 70) });
  run.play(inputs.slice(70));
  const whole = fieldsOf(run);
  const middle = Math.min(65, run.frames);
  const preview = run.preview(middle, [0, 2], 60);
  const worlds = [0, middle, run.frames, middle].map((frame) => worldOf(run.seek(frame)));
  const states = run.states(0, run.frames).map(({ x, hold }) => [x, hold]);
  run.rewind(middle);
  const rewound = fieldsOf(run);
  run.edit(Math.max(middle - 3, 0), inputs.slice(Math.max(middle - 3, 0)));
  const differs = difference(level, inputs, inputs.slice(given.delay));
  return { differs, level, whole, middle, preview, worlds, states, rewound, edited: fieldsOf(run) };
});
console.log(JSON.stringify(results));
