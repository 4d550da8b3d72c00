/* Levels as the page displays them, level documents:
 *
 *     id, name, category, par, code, episode, support, warnings, next, map   as in docs/lab/studio.md
 *     title      title in the file's header
 *     tiles      23 rows of 42 tile ids; tile (row, column) covers the 24 px from (24 column + 24, 24 row + 24)
 *     spawn      start position of the ninja, [x, y]
 *     entities   list of {kind, type, x, y, orientation, mode}.  kind, type: name and number of its kind.  x, y: start
 *                position; for a locked or trap door, position of its switch.  orientation: 0..7.  Doors also have
 *                door: [x1, y1, x2, y2], the line that they block.  An exit has switch, the index of its switch; an
 *                exit switch has exit, the index of its exit.
 *     start      {ninja, looks} before the first frame; see entityLook and ninjaOf
 *     left_out   entities that are not simulated: [{name, x, y}]
 *     newGame    function that returns a Game
 *
 * Positions are in px of the stage, which includes its border of one tile (24 px); y grows downward.
 */

import { Game } from "../../../wasm/game.js";
import { compileLevel } from "../../../wasm/level.js";
import { COLUMNS, EXIT, EXIT_SWITCH, KINDS, ROWS, STEP, nameOf } from "./kinds.js";

const NINJA_COLUMNS = 10; // of Frames.ninja
const DOORS = [5, 6, 8];
const AIMING = new Set([12, 13, 18, 19, 23]);

/** @typedef {import("../../../wasm/game.js").Frames} Frames */

/**
 * Return a level document.
 * @param {{module: import("../../../wasm/kernels.js").KernelModule, kernels:
 *   import("../../../wasm/kernels.js").Kernels}} engine
 * @param {import("../../../wasm/level.js").Level} level
 * @param {object} about - id, name and other entries that do not depend on the simulator
 * @returns {any}
 */
export function levelDocument({ module, kernels }, level, about) {
  const compiled = compileLevel(kernels, level);
  const newGame = () => new Game(module, compiled);
  const game = newGame();
  const records = Array.from({ length: level.records.length / 5 }, (_, i) => level.records.subarray(5 * i, 5 * i + 5));
  const ofKind = new Map(); // type -> records in file order; the index is the number of the entity
  for (const record of records) ofKind.set(record[0], [...(ofKind.get(record[0]) ?? []), record]);
  const counts = new Map();
  const entities = Array.from({ length: game.entityCount }, (_, i) => {
    const { type, x, y, x1, y1, x2, y2, partner } = game.kernels.record(game.world.entity, i);
    const number = counts.get(type) ?? 0;
    counts.set(type, number + 1);
    // an exit creates its switch, even if the switch has no record of its own
    const [, , , orientation, mode] = ofKind.get(type === EXIT_SWITCH ? EXIT : type)[number];
    const kind = type === EXIT_SWITCH ? "exit switch" : nameOf(type);
    const entity = { kind, type, x, y, orientation, mode };
    if (DOORS.includes(type)) entity.door = [x1, y1, x2, y2];
    if (partner >= 0) entity[type === EXIT ? "switch" : "exit"] = partner;
    return entity;
  });
  const omitted = records.slice(1).filter(([kind]) => KINDS.get(kind)?.leftOut || kind > 28);
  const [frames, aims] = [game.record([]), aimsOf(entities)];
  return {
    ...about,
    title: level.title,
    tiles: Array.from({ length: ROWS }, (_, row) => [...level.tiles.subarray(COLUMNS * row, COLUMNS * (row + 1))]),
    spawn: [STEP * records[0][1], STEP * records[0][2]],
    entities,
    start: { ninja: ninjaOf(frames, 0), looks: entities.map((_, i) => entityLook(frames, 0, i, aims)) },
    left_out: omitted.map(([kind, x, y]) => ({ name: nameOf(kind), x: STEP * x, y: STEP * y })),
    newGame,
  };
}

/** Return the place of each entity among those that aim: lasers, turrets and shooting drones; -1 for others. */
export function aimsOf(entities) {
  let count = 0;
  return entities.map(({ type }) => (AIMING.has(type) ? count++ : -1));
}

/** Return the ninja of a row of frames: [x, y, vx, vy, state, floor normal x, y, airborne 0 or 1, gold].
 *  @param {Frames} frames  @param {number} row */
export function ninjaOf(frames, row) {
  const [x, y, vx, vy, state, airborne, , nx, ny, gold] = frames.ninja.subarray(NINJA_COLUMNS * row);
  return [x, y, vx, vy, state, nx, ny, airborne, gold];
}

/** Return an entity of a row of frames: [bits, x, y], and for those that aim the three numbers of their aim.  bits: as
 *  Run.entity_state of nppsim.simulate (bit 0 active, bits 1 to 3 own state, bit 4 closed door).
 *  @param {Frames} frames  @param {number} row  @param {number} entity  @param {number[]} places - aimsOf */
export function entityLook({ bits, places: xy, aims }, row, entity, places) {
  const at = row * places.length + entity;
  const look = [bits[at], xy[2 * at], xy[2 * at + 1]];
  if (places[entity] < 0) return look;
  const begin = (row * aims.length * places.length) / bits.length + 3 * places[entity];
  return [...look, aims[begin], aims[begin + 1], aims[begin + 2]];
}
