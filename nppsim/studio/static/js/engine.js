/* The simulator of the page, and levels and runs of the studio as documents. */

import { Kernels, loadModule } from "../../../wasm/kernels.js";
import { levelFromBytes } from "../../../wasm/level.js";
import { levelDocument, runDocument } from "./documents.js";
import { aboutLevel, findRun } from "./library.js";
import { bytes } from "./recording.js";

let loaded = null;

function loadEngine() {
  loaded ??= loadModule("game").then((module) => ({ module, kernels: new Kernels(module) }));
  return loaded;
}

/** Load a level; resolves to its document. */
export async function loadLevel(id) {
  const [about, engine] = await Promise.all([aboutLevel(id), loadEngine()]);
  return levelDocument(engine, levelFromBytes(bytes(about.map), about.name), about);
}

/** Load a run of a level; resolves to its run document.  path: as for findRun. */
export async function loadRun(path, level) {
  const { label, inputs } = await findRun(path);
  return runDocument(level, bytes(inputs), label);
}
