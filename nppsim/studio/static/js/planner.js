/* Runs of the planner, which searches in a worker.  The browser stores the runs from the spawn. */

import { levelFromBytes } from "../../../wasm/level.js";
import { bytes } from "./arrays.js";
import { addPlan, storedPlan } from "./store.js";
import { messagesOf } from "./work.js";

export const PLANNERS = { time: "planner", score: "planner (score)", "all-gold": "planner (all gold)" }; // by objective
const TIME_LIMIT_MS = 60_000;
/** @type {Map<string, import("./store.js").Plan | null>} */
const found = new Map(); // by objective and level, of this tab's searches; null: no run

/**
 * Return the run that an earlier search has found, or search for one; null if the planner finds none.
 * @param {any} level - level document
 * @param {string} objective
 * @param {{signal?: AbortSignal, progress?: (simulated: number) => void}} [options]
 * @returns {Promise<import("./store.js").Plan | null>}
 */
export async function planned(level, objective = "time", options = {}) {
  const key = `${objective} ${level.id}`;
  const known = (await storedPlan(level.id, objective)) ?? found.get(key) ?? null;
  if (known || found.has(key)) return known;
  const { state, inputs, gold } = await search({ level: levelOf(level), objective }, options);
  const plan = state === "found" ? { frames: inputs.length, inputs, gold } : null;
  // if the storage is full, the next visit searches again
  await storePlan(level, objective, PLANNERS[objective], plan).catch(() => null);
  return plan;
}

/** Store a run that ``planned`` returns from now on.  by: who found it. */
export async function storePlan(level, objective, by, plan) {
  found.set(`${objective} ${level.id}`, plan);
  if (plan) await addPlan(level.id, objective, by, plan);
}

/** The level of a level document, as ``search`` takes it. */
export function levelOf({ map, name }) {
  return levelFromBytes(bytes(map), name);
}

/**
 * Search in a worker of its own.
 * @param {Record<string, any>} request - of nppsim/wasm/planner.js::findRun
 * @param {{signal?: AbortSignal, progress?: (simulated: number, best?: {inputs: Uint8Array, gold: number}) => void,
 *   most?: number}} [options] - progress: receives the frames simulated so far, and a new best run.  most: time limit,
 *   ms
 * @returns {Promise<Record<string, any>>} the answer of findRun; after the time limit {state: "found"} with the best
 *   run so far, or {state: "timeout"}.  Rejects with an AbortError.
 */
export async function search(
  request,
  { signal = new AbortController().signal, progress = (..._) => {}, most = TIME_LIMIT_MS } = {},
) {
  const end = performance.now() + most;
  /** @type {Record<string, any> | null} */
  let latest = null;
  for await (const { simulated, best, answer } of messagesOf("planner", request, signal)) {
    if (answer) return answer;
    latest = best ?? latest;
    progress(simulated, best);
    if (performance.now() > end) break;
  }
  return latest ? { state: "found", ...latest } : { state: "timeout" };
}
