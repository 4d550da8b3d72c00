/* The simulator of the page, and levels and runs of the studio as documents. */

import { Kernels, loadModule } from "../../../wasm/kernels.js";
import { levelFromBytes } from "../../../wasm/level.js";
import { levelDocument } from "./documents.js";
import { aboutLevel, findRun } from "./library.js";
import { bytes } from "./arrays.js";
import { Recording } from "./recording.js";

/** @typedef {{module: import("../../../wasm/kernels.js").KernelModule, kernels: Kernels}} Engine */
/** @type {Promise<Engine> | null} */
let loaded = null;

function loadEngine() {
  return (loaded ??= loadModule("game").then((module) => ({ module, kernels: new Kernels(module) })));
}

/** Load a level; resolves to its document. */
export async function loadLevel(id) {
  const [about, engine] = await Promise.all([aboutLevel(id), loadEngine()]);
  return levelDocument(engine, levelFromBytes(bytes(about.map), about.name), about);
}

/** Load a run of a level; resolves to its Recording.  path: as for findRun. */
export async function loadRun(path, level) {
  const { label, inputs } = await findRun(path);
  return new Recording(level, { label, inputs: bytes(inputs) });
}
