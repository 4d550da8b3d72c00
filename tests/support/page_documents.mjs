/* node page_documents.mjs CASES.json
 *
 * For each case {map: base64, about, inputs: base64, delay}, print the documents that the page computes, as JSON.
 */
import { readFileSync } from "node:fs";
import { difference } from "../../nppsim/studio/static/js/differences.js";
import { PlayedRun, levelDocument, runDocument } from "../../nppsim/studio/static/js/documents.js";
import { Kernels, loadModule } from "../../nppsim/wasm/kernels.js";
import { levelFromBytes } from "../../nppsim/wasm/level.js";

const module = await loadModule("game");
const engine = { module, kernels: new Kernels(module) };
const decoded = (text) => new Uint8Array(Buffer.from(text, "base64"));
const text = (bytes) => Buffer.from(bytes).toString("base64");
const encoded = (part) => ({ ...part, inputs: text(part.inputs), track: text(part.track) });

const results = JSON.parse(readFileSync(process.argv[2])).map((given) => {
  const inputs = decoded(given.inputs);
  const level = levelDocument(engine, levelFromBytes(decoded(given.map)), given.about);
  const played = new PlayedRun(level);
  const frames = [...played.step(inputs.slice(0, 70)), ...played.step(inputs.slice(70))];
  const last = played.inputs.length;
  const middle = Math.min(65, last);
  const preview = played.preview(middle, [0, 2], 60);
  const frame = played.rewind(middle);
  const again = played.step(inputs.slice(middle, last));
  const edited = encoded(played.edit(middle, inputs.slice(middle)));
  const differs = difference(level, inputs, inputs.slice(given.delay));
  return { differs, level, run: encoded(runDocument(level, inputs, "a run")), frames, frame, again, edited, preview };
});
console.log(JSON.stringify(results));
