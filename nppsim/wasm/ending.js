/* How a run ends, and why it does not finish its level (nppsim/replays/ending.py). */

import { ENTITY_NAMES } from "./files.js";
import { Game } from "./game.js";
import { Kernels } from "./kernels.js";
import { RECORD_SIZE, compileLevel } from "./level.js";
import { MAX_PATH, followPath } from "./path_lengths.js";

const PROGRESS = 12; // px, smallest progress along the path
const STUCK_FRAMES = 120; // without progress at the end of a run, from which they are mentioned
const REACH = 60; // px, largest distance of an entity that may have killed the ninja
const SOLID_REACH = 24; // px
const [EXIT, DEATH_BALL] = [3, 25];
const SOLID = [20, 28]; // thwumps
const RANGED = [12, 13, 18, 19, 23]; // kill at a distance
const HAZARDS = [1, 21, ...RANGED, 14, 15, 26, 16, 22, DEATH_BALL, ...SOLID];

/**
 * Play a run of a level, and return how it ends.
 * @param {import("./kernels.js").KernelModule} module - "game"
 * @param {import("./level.js").CompiledLevel} compiled
 * @param {ArrayLike<number>} inputs
 * @param {{deadlyFrom?: number | null, backtracks?: number}} [played] - deadlyFrom: number of frames after which every
 *   action was deadly.  backtracks: how often the player took decisions back
 * @returns {{place: number[], share: number, why: string}} place: position of the last progress of a run that neither
 *   wins nor dies, otherwise the last one, px.  share: covered share of the path.  why: one sentence, "" for a win
 */
export function endingOf(module, compiled, inputs, { deadlyFrom = null, backtracks = 0 } = {}) {
  const game = new Game(module, compiled);
  const { x, y } = game.ninja;
  const { length, points, left, frames } = followPath(game, inputs);
  const path = [[x, y], ...points];
  const last = path[frames];
  if (game.outcome === "won") return { place: last, share: 1, why: "" };
  const all = [length, ...left];
  const least = Math.min(...all);
  const farthest = all.findIndex((one) => one <= least + PROGRESS);
  const covered = length - least;
  const died = game.outcome === "died";
  const seconds = (count) => `${(count / 60).toFixed(2)} s`;
  const at = (position) => `(${position.map(Math.round).join(", ")})`;
  const px = (value) => Math.round(value).toLocaleString("en");
  const progress = `${px(covered)} of ${px(length)} px of the path`;
  const parts = [
    died ? `killed by ${causeOfDeath(module, game, inputs)} at ${at(last)}` : "not finished",
    ` after ${seconds(frames)}`,
    died && deadlyFrom !== null ? `; every action was deadly from ${seconds(deadlyFrom)} on` : "",
  ];
  if (length >= MAX_PATH) parts.push("; no path leads to the exit");
  else if (frames - farthest < STUCK_FRAMES) parts.push(`; ${progress} covered`);
  else parts.push(`; no progress after ${seconds(farthest)} at ${at(path[farthest])}, ${progress}`);
  if (backtracks) parts.push(`; went back ${backtracks === 1 ? "once" : `${backtracks} times`}`);
  return { place: died ? last : path[farthest], share: covered / Math.max(length, covered, 1), why: parts.join("") };
}

/** Name, with an article, the entity type without which the ninja would survive.  game: after the death. */
function causeOfDeath(module, game, inputs) {
  const { x, y } = game.ninja;
  const { places } = game.record([]);
  const reach = new Map();
  for (let i = 0; i < game.entityCount; i++) {
    const { type } = game.kernels.record(game.world.entity, i);
    const distance = Math.hypot(places[2 * i] - x, places[2 * i + 1] - y);
    if (HAZARDS.includes(type)) reach.set(type, Math.min(reach.get(type) ?? Infinity, distance));
  }
  const limit = (type) => (RANGED.includes(type) ? Infinity : SOLID.includes(type) ? SOLID_REACH : REACH);
  const near = [...reach].filter(([type, distance]) => distance <= limit(type)).sort((a, b) => a[1] - b[1]);
  const types = near.map(([type]) => type);
  const cause =
    types.find((type) => !SOLID.includes(type) && survives(module, game.compiled.level, type, inputs)) ??
    types.find((type) => SOLID.includes(type));
  const name = cause === undefined ? "fall or crush" : ENTITY_NAMES[cause];
  return `${"aeiou".includes(name[0]) ? "an" : "a"} ${name}`;
}

/** Return whether the ninja survives a run without the entities of a type. */
function survives(module, level, type, inputs) {
  const records = level.records.filter((_, i) => level.records[i - (i % RECORD_SIZE)] !== type);
  const count = (kind) => records.filter((value, i) => i % RECORD_SIZE === 0 && value === kind).length;
  const without = { ...level, records, exitCount: count(EXIT), ballCount: count(DEATH_BALL) };
  const game = new Game(module, compileLevel(new Kernels(module), without));
  game.play(inputs);
  return game.outcome !== "died";
}
