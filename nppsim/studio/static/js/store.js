/* Storage of this browser (IndexedDB): opened levels, stored runs, best runs, runs of the planner, branches of the
 * input editor, drafts of the level editor and targets.
 *
 *     const { number } = await addRun(recording, label);
 *     for (const run of await storedRuns()) ...
 *
 * Tabs share the storage; a change dispatches "storechange" on the document of every tab.
 */

import { cardOf } from "../../../wasm/files.js";
import { score } from "./clock.js";
import { bytes, text } from "./arrays.js";

const VERSION = 3; // 1 had neither plans nor branches, 2 had no targets
const STORES = {
  levels: { keyPath: "id" }, // {id, card, map: bytes of the map file, order: by which they are sorted}
  runs: { keyPath: "number", autoIncrement: true },
  best: { keyPath: ["level", "kind", "name", "frames", "gold"] },
  plans: { keyPath: ["level", "objective"] }, // {level, objective} and a Plan
  branches: { keyPath: "level" }, // {level, branches: [{name, inputs}]}
  drafts: { keyPath: "id" }, // {id, draft, saved, changed: time, ms}
  targets: { keyPath: "id" }, // {id: of the game or beginning of a level's, frames or score}
};
const FORMAT = "nppsim browser data 1";
const FULL =
  "The browser's storage is full. Remove stored runs under Runs (save them as a file first), or free disk space.";
const channel = new BroadcastChannel("nppsim.store");
channel.onmessage = () => document.dispatchEvent(new Event("storechange"));

/**
 * A stored run.
 * @typedef {object} StoredRun
 * @property {number} number - its id
 * @property {string} label
 * @property {string} level - id
 * @property {Uint8Array} map - the level's file
 * @property {string | null} category - of the level
 * @property {Uint8Array} inputs
 * @property {number} frames
 * @property {"won" | "died" | "running"} outcome
 * @property {number} gold
 * @property {number | null} score - if it won
 */

/** @type {Promise<IDBDatabase> | null} */
let opening = null;

function database() {
  return (opening ??= new Promise((resolve, reject) => {
    const request = indexedDB.open("nppsim", VERSION);
    request.onupgradeneeded = () => {
      const { result } = request;
      for (const [name, options] of Object.entries(STORES))
        if (!result.objectStoreNames.contains(name)) result.createObjectStore(name, options);
    };
    request.onsuccess = () => {
      request.result.onversionchange = () => request.result.close(); // a tab with a newer version of the page
      resolve(request.result);
    };
    request.onerror = () => reject(readable(request.error));
  }).catch((error) => {
    opening = null;
    throw error;
  }));
}

function readable(error) {
  if (error?.name === "QuotaExceededError") return new Error(FULL);
  return new Error(`The browser cannot store data (${error?.message ?? "no reason given"}): is this a private window?`);
}

/** Make requests on a store, and return the results when all data are on the disk. */
async function change(name, mode, requests) {
  const transaction = (await database()).transaction(name, mode);
  const results = requests(transaction.objectStore(name));
  await new Promise((resolve, reject) => {
    transaction.oncomplete = resolve;
    transaction.onabort = () => reject(readable(transaction.error));
  });
  if (mode === "readwrite") {
    channel.postMessage(name);
    document.dispatchEvent(new Event("storechange"));
  }
  return results.map(({ result }) => result);
}

const put = (name, records) => change(name, "readwrite", (store) => records.map((record) => store.put(record)));
const drop = (name, keys) => change(name, "readwrite", (store) => keys.map((key) => store.delete(key)));
const find = async (name, key) => (await change(name, "readonly", (store) => [store.get(key)]))[0];
const all = async (name) => (await change(name, "readonly", (store) => [store.getAll()]))[0];

// ---------------------------------------------------------------------------------------------------------------------
// Levels that were opened, drawn or linked

/** Add levels that are not among others.  levels: [{map: bytes of the map file, level, name, code, category}].  others:
 *  cards.  Returns their ids. */
export async function addLevels(levels, others) {
  const known = new Set(others.map(({ id }) => id));
  const cards = levels.map(({ level, name, code, category }) => cardOf(level, { name, code, category }));
  const order = Date.now();
  const records = cards.map((card, i) => ({ id: card.id, card, map: levels[i].map, order: order + i / levels.length }));
  const added = records.filter(({ id }) => !known.has(id));
  if (added.length) await put("levels", added);
  return cards.map(({ id }) => id);
}

/** Return {id, card, map} of a level, or undefined. */
export const ownLevel = (id) => find("levels", id);

export const ownLevels = async () => (await all("levels")).sort((a, b) => a.order - b.order);

export const removeLevels = (ids) => drop("levels", ids);

// ---------------------------------------------------------------------------------------------------------------------
// Runs

/** Store a run.  recording: Recording.  @returns {Promise<StoredRun>} */
export async function addRun(recording, label = recording.label) {
  const { level, frames, outcome } = recording;
  const { id, map, category = null } = level;
  const gold = recording.gold();
  const played = { inputs: Uint8Array.from(recording.inputs), frames, outcome, gold };
  const points = outcome === "won" ? score(frames, gold) : null;
  const run = { label, level: id, map: bytes(map), category, ...played, score: points };
  const [number] = await put("runs", [run]);
  return { ...run, number };
}

/** Return the stored runs, newest first.  @returns {Promise<StoredRun[]>} */
export const storedRuns = async () => (await all("runs")).reverse();

/** @returns {Promise<StoredRun>} */
export async function storedRun(number) {
  const run = await find("runs", Number(number));
  if (!run) throw new Error("This run was removed, perhaps in another tab.");
  return run;
}

export const removeRun = (number) => drop("runs", [number]);

// ---------------------------------------------------------------------------------------------------------------------
// Best runs

/** Add a run that won, and return the best runs (``best``).  level: id of a level or episode.  levels: their number.
 *  kind: "person", "agent" or "planner". */
export async function addBest(level, { kind, name, frames, gold, levels = 1 }) {
  const points = score(frames, gold, levels);
  if (points >= 0) await put("best", [{ level, kind, name, frames, gold, score: points }]); // else the clock ran out
  return best(level);
}

/** Return {time: fastest runs, score: highest-scoring runs}, one per player, each {kind, name, frames, gold, score}. */
export async function best(level) {
  const range = IDBKeyRange.bound([level], [level, []]);
  const [runs] = await change("best", "readonly", (store) => [store.getAll(range)]);
  const first = (order) => {
    const players = new Map();
    for (const run of [...runs].sort(order))
      if (!players.has(run.kind + run.name)) players.set(run.kind + run.name, run);
    return [...players.values()];
  };
  return {
    time: first((a, b) => a.frames - b.frames || b.score - a.score),
    score: first((a, b) => b.score - a.score || a.frames - b.frames),
  };
}

/** Return the frames of the fastest run of a person among best runs, or null. */
export const ownBest = ({ time }) => time.find(({ kind }) => kind === "person")?.frames ?? null;

// ---------------------------------------------------------------------------------------------------------------------
// Runs of the planner

/** @typedef {{inputs: Uint8Array, frames: number, gold: number, by?: string, settings?: object}} Plan - a run from the
 *  spawn.  by: who found it; default: the planner.  settings: of the planner, to improve it */

/** Return true if a run is better than another one for an objective. */
export function isBetter(objective, run, other) {
  const worth = ({ inputs, gold }) => ({ score: score(inputs.length, gold), "all-gold": gold })[objective] ?? 0;
  const gain = worth(run) - worth(other);
  return gain > 0 || (gain === 0 && run.inputs.length < other.inputs.length);
}

/**
 * Return the run that is best for an objective, which may have been found for another one; null if no search for the
 * objective has found a run.
 * @returns {Promise<Plan | null>}
 */
export async function storedPlan(level, objective) {
  const range = IDBKeyRange.bound([level], [level, []]);
  const [plans] = await change("plans", "readonly", (store) => [store.getAll(range)]);
  const own = plans.find((plan) => plan.objective === objective);
  return own ? plans.reduce((first, plan) => (isBetter(objective, plan, first) ? plan : first), own) : null;
}

/** Return the frames of the fastest stored run by level.  @returns {Promise<Map<string, number>>} */
export async function storedPars() {
  const slowFirst = (await all("plans")).sort((a, b) => b.frames - a.frames);
  return new Map(slowFirst.map(({ level, frames }) => [level, frames]));
}

/** Store a run, also among the best runs.  by: who found it. */
export async function addPlan(level, objective, by, { inputs, frames, gold, settings = {} }) {
  await put("plans", [{ level, objective, inputs, frames, gold, by, settings }]);
  await addBest(level, { kind: "planner", name: by, frames, gold });
}

// ---------------------------------------------------------------------------------------------------------------------
// Branches of the input editor

/** Return [{name, inputs}, ...] of a level. */
export const storedBranches = async (level) => (await find("branches", level))?.branches ?? [];

export const putBranches = (level, branches) => put("branches", [{ level, branches }]);

// ---------------------------------------------------------------------------------------------------------------------
// Drafts of the editor

/** Return the drafts, the latest first. */
export const drafts = async () => (await all("drafts")).sort((a, b) => b.changed - a.changed);

export const putDraft = (id, draft, saved) => put("drafts", [{ id, draft, saved, changed: Date.now() }]);

export const removeDrafts = (ids) => drop("drafts", ids);

// ---------------------------------------------------------------------------------------------------------------------
// Targets

export const storedTargets = () => all("targets");

/** Store targets instead of earlier ones. */
export const putTargets = (targets) =>
  change("targets", "readwrite", (store) => [store.clear(), ...targets.map((one) => store.put(one))]);

// ---------------------------------------------------------------------------------------------------------------------
// Everything as one file

/** Return all data as the bytes of a file. */
export async function exportAll() {
  const names = Object.keys(STORES);
  const data = Object.fromEntries(await Promise.all(names.map(async (name) => [name, await all(name)])));
  const packed = (key, value) => (value instanceof Uint8Array ? { base64: text(value) } : value);
  return new TextEncoder().encode(JSON.stringify({ format: FORMAT, ...data }, packed));
}

/** Return whether a file was written by ``exportAll``. */
export const isExport = (data) => new TextDecoder().decode(data.subarray(0, 60)).startsWith(`{"format":"${FORMAT}"`);

/** Add the data of such a file to those of this browser; return the number of its runs. */
export async function importAll(data) {
  const unpacked = (key, value) => (value?.base64 === undefined ? value : bytes(value.base64));
  let content;
  try {
    content = JSON.parse(new TextDecoder().decode(data), unpacked);
  } catch (error) {
    throw new Error(`The file of stored runs is damaged or cut off (${error.message}).`, { cause: error });
  }
  for (const [name, { keyPath }] of Object.entries(STORES)) {
    const isRecord = (record) => [keyPath].flat().every((key) => record?.[key] !== undefined);
    content[name] ??= []; // older files have fewer stores
    if (!Array.isArray(content[name]) || !content[name].every(isRecord))
      throw new Error(`The file of stored runs is damaged: its "${name}" cannot be read.`);
  }
  const digest = ({ label, level, inputs }) => JSON.stringify([label, level, text(inputs)]);
  const known = new Set((await storedRuns()).map(digest));
  const runs = content.runs.filter((run) => !known.has(digest(run)));
  for (const run of runs) delete run.number; // of the other browser
  for (const name of Object.keys(STORES)) await put(name, name === "runs" ? runs : content[name]);
  return runs.length;
}
