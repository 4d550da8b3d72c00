/* node wasm_levels.mjs LEVELS.json
 *
 * Compile and play levels, [{map: base64, inputs: base64}, ...]; print digests of the results as JSON.
 */
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { Game } from "../../nppsim/wasm/game.js";
import { Kernels, loadModule } from "../../nppsim/wasm/kernels.js";
import { compileLevel, computePaths, levelFromBytes, levelToBytes } from "../../nppsim/wasm/level.js";

const module = await loadModule("game");
const kernels = new Kernels(module);
const decoded = (text) => new Uint8Array(Buffer.from(text, "base64"));
const digest = (...arrays) => arrays.reduce((hash, array) => hash.update(array), createHash("sha256")).digest("hex");

/** Play in parts, return to the middle, and play the rest again; return what the two passes have in common. */
function played(compiled, inputs) {
  const game = new Game(module, compiled);
  const middle = inputs.length >> 1;
  const parts = [game.record(inputs.subarray(0, middle))];
  const state = game.snapshot();
  parts.push(game.record(inputs.subarray(middle)));
  const end = game.snapshot();
  game.restore(state);
  if (game.outcome === "running") game.play(inputs.subarray(middle));
  if (digest(end) !== digest(game.snapshot())) throw new Error("restore and play give another state");
  const rows = (name) => parts.map(({ count, [name]: values, ninja }) => bytes(values.subarray(0, (count * values.length) / (ninja.length / 10))));
  return { frames: game.frame, outcome: game.outcome, ...digests(["ninja", "bits", "places", "aims"], rows) };
}

const bytes = (values) => new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
const digests = (names, parts) => Object.fromEntries(names.map((name) => [name, digest(...parts(name))]));

const results = JSON.parse(readFileSync(process.argv[2])).map(({ map, inputs }) => {
  const level = levelFromBytes(decoded(map));
  const compiled = compileLevel(kernels, level);
  const { stage, world } = compiled;
  const paths = computePaths(kernels, compiled);
  return {
    map: digest(levelToBytes(level)),
    stage: digest(stage.bytes),
    ...Object.fromEntries(Object.entries({ ...world, ...paths }).map(([name, array]) => [name, digest(array.bytes)])),
    ...played(compiled, decoded(inputs)),
  };
});
console.log(JSON.stringify(results));
