/* The simulator of the page, and levels and runs of the studio as documents. */

import { Kernels, loadModule } from "../../../wasm/kernels.js";
import { levelFromBytes } from "../../../wasm/level.js";
import { get } from "./api.js";
import { levelDocument, runDocument } from "./documents.js";
import { bytes } from "./recording.js";

let loaded = null;

function loadEngine() {
  loaded ??= loadModule("game").then((module) => ({ module, kernels: new Kernels(module) }));
  return loaded;
}

/** Load a level of the studio; resolves to its document. */
export async function loadLevel(id) {
  const [about, engine] = await Promise.all([get(`levels/${id}`), loadEngine()]);
  return levelDocument(engine, levelFromBytes(bytes(about.map), about.name), about);
}

/** Load a run of a level, {label, inputs}; resolves to its run document. */
export async function loadRun(path, level) {
  const { label, inputs } = await get(path);
  return runDocument(level, bytes(inputs), label);
}
