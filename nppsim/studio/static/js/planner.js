/* Runs of the planner, which searches in a worker.  The browser stores the runs from the spawn. */

import { loadModule } from "../../../wasm/kernels.js";
import { levelFromBytes } from "../../../wasm/level.js";
import { bytes, text } from "./recording.js";

export const PLANNERS = { time: "planner", score: "planner (score)", "all-gold": "planner (all gold)" }; // by objective
const TIME_LIMIT_MS = 60_000;
const key = (id, objective) => `nppsim.planned.${objective}.${id}`;
/** @type {Map<string, Planned | null>} */
const found = new Map(); // by key, results of this tab's searches; null: no run

/**
 * A run from the spawn.
 * @typedef {{inputs: Uint8Array, frames: number, gold: number}} Planned
 */

/** Return the run that an earlier search has found, or null.  @returns {Planned | null} */
export function storedPlan(id, objective = "time") {
  const stored = found.get(key(id, objective)) ?? JSON.parse(localStorage.getItem(key(id, objective)) ?? "null");
  return stored && { frames: bytes(stored.inputs).length, inputs: bytes(stored.inputs), gold: stored.gold };
}

/**
 * Return the run that an earlier search has found, or search for one; null if the planner finds none.
 * @param {any} level - level document
 * @param {string} objective
 * @param {{signal?: AbortSignal, progress?: (simulated: number) => void}} [options]
 * @returns {Promise<Planned | null>}
 */
export async function planned(level, objective = "time", options = {}) {
  const name = key(level.id, objective);
  const stored = storedPlan(level.id, objective);
  if (stored || found.has(name)) return stored;
  const { state, inputs, gold } = await search({ level: levelOf(level), objective }, options);
  const plan = state === "found" ? { frames: inputs.length, inputs, gold } : null;
  found.set(name, plan);
  try {
    if (plan) localStorage.setItem(name, JSON.stringify({ inputs: text(inputs), gold }));
  } catch {
    // the storage is full: the next visit searches again
  }
  return plan;
}

/** The level of a level document, as ``search`` takes it. */
export function levelOf({ map, name }) {
  return levelFromBytes(bytes(map), name);
}

/**
 * Search in a worker of its own.
 * @param {Record<string, any>} request - of nppsim/wasm/planner.js::findRun
 * @param {{signal?: AbortSignal, progress?: (simulated: number) => void}} [options]
 * @returns {Promise<Record<string, any>>} the answer of findRun, or {state: "timeout"}; rejects with an AbortError
 */
export async function search(request, { signal, progress = () => {} } = {}) {
  const modules = await Promise.all([loadModule("game"), loadModule("planner")]);
  signal?.throwIfAborted();
  const worker = new Worker(new URL("../../../wasm/planner_worker.js", import.meta.url), { type: "module" });
  try {
    return await new Promise((resolve, reject) => {
      setTimeout(() => resolve({ state: "timeout" }), TIME_LIMIT_MS);
      signal?.addEventListener("abort", () => reject(signal.reason));
      worker.onmessage = ({ data: { simulated, answer, error } }) => {
        if (simulated !== undefined) progress(simulated);
        else if (answer) resolve(answer);
        else reject(new Error(error));
      };
      worker.onerror = ({ message }) => reject(new Error(`the planner failed: ${message}`));
      worker.postMessage({ ...request, modules });
    });
  } finally {
    worker.terminate();
  }
}
