/* Runs of the planner, which searches in a worker.  The browser stores the runs from the spawn. */

import { levelFromBytes } from "../../../wasm/level.js";
import { bytes, text } from "./recording.js";

export const PLANNERS = { time: "planner", score: "planner (score)", "all-gold": "planner (all gold)" }; // by objective
const TIME_LIMIT_MS = 60_000;
const key = (id, objective) => `nppsim.planned.${objective}.${id}`;
const withoutRun = new Set(); // keys of levels for which a search in this tab has found no run

/**
 * A run from the spawn.
 * @typedef {{inputs: Uint8Array, frames: number, gold: number}} Planned
 */

/** Return the stored run of a level, or null.  @returns {Planned | null} */
export function storedPlan(id, objective = "time") {
  const stored = JSON.parse(localStorage.getItem(key(id, objective)) ?? "null");
  return stored && { ...stored, frames: bytes(stored.inputs).length, inputs: bytes(stored.inputs) };
}

/**
 * Return the stored run of a level, or search for one; null if the planner finds none.
 * @param {any} level - level document
 * @param {string} objective
 * @param {{signal?: AbortSignal, progress?: (simulated: number) => void}} [options]
 * @returns {Promise<Planned | null>}
 */
export async function planned(level, objective = "time", options = {}) {
  const { id } = level;
  const found = storedPlan(id, objective);
  if (found || withoutRun.has(key(id, objective))) return found;
  const { state, inputs, gold } = await search({ level: levelOf(level), objective }, options);
  if (state === "found") localStorage.setItem(key(id, objective), JSON.stringify({ inputs: text(inputs), gold }));
  else withoutRun.add(key(id, objective));
  return storedPlan(id, objective);
}

/** Return a request of the watch socket with the inputs of the planner's run instead of {planner}. */
export async function withInputs(level, request, options = {}) {
  if (!request.planner) return request;
  const objective = request.planner === true ? "time" : request.planner;
  const plan = await planned(level, objective, options);
  if (!plan) throw new Error("the planner found no run of this level");
  return { label: PLANNERS[objective], inputs: text(plan.inputs) };
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
export function search(request, { signal, progress = () => {} } = {}) {
  const worker = new Worker(new URL("../../../wasm/planner_worker.js", import.meta.url), { type: "module" });
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => resolve({ state: "timeout" }), TIME_LIMIT_MS);
    signal?.throwIfAborted();
    signal?.addEventListener("abort", () => reject(signal.reason));
    worker.onmessage = ({ data: { simulated, found, error } }) => {
      if (simulated !== undefined) progress(simulated);
      else if (found) resolve(found);
      else reject(new Error(error));
    };
    worker.onerror = ({ message }) => reject(new Error(`the planner failed: ${message}`));
    worker.postMessage(request);
    return timer;
  }).finally(() => worker.terminate());
}
