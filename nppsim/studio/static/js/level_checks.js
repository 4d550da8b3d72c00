/* Checks of a level in the editor, with messages for its author. */

import { GOLD, EXIT, KINDS, STEP, STEPS_PER_TILE, STEPS_X, STEPS_Y, isLeftOut, nameOf } from "./kinds.js";
import { tileAt } from "./level_model.js";
import { NUM_TILES, TILE, isSolid } from "./tiles.js";

/** @type {Diagnostic["severity"][]} */
const SEVERITIES = ["error", "warning", "note"];
const FAR_TILES = 22; // half the stage: distance from which a switch is reported as far from its door or exit
const MOST_RECORDS = 16_383;
const MOST_COUNTED = 255; // exits, and death balls: the file states their number in one byte
const DEATH_BALL = 25;
const ON_THE_GRID = [12, 13, 14, 15, 26, 16, 20, 28]; // kinds that move on the half-cell grid
/**
 * Kinds that the reference simulator leaves out (docs/physics.md, section 8), and how they behave here.
 * @type {[number[], string][]}
 */
const COMPLETIONS = [
  [[15, 12, 13, 18, 19], "behave as in N v2.0"],
  [[23], "behave partly by guess"],
  [[22], "behave as community tools describe them"],
];

/**
 * Message about a level.
 * @typedef {object} Diagnostic
 * @property {"error" | "warning" | "note"} severity - error: not a valid level; warning: a probable mistake
 * @property {string} text
 * @property {number[] | null} at - position in steps of 6 px; null if it concerns the whole level
 */

/**
 * Check a state of the editor; return the diagnostics, the most severe first.
 * @param {any} state - see level_model.js
 * @param {boolean} reachable - false if no path leads from the spawn over an exit switch to its exit
 * @returns {Diagnostic[]}
 */
export function diagnostics(state, reachable = true) {
  const errors = [...missing(state)];
  const found = errors.length
    ? errors
    : [...misplaced(state), ...unusual(state), ...pathless(state, reachable), ...notes(state)];
  if (!state.entities.some(({ kind }) => kind === EXIT))
    found.unshift(warning("There is no exit, so the level cannot be finished. Place an exit and its switch."));
  return found.sort((a, b) => SEVERITIES.indexOf(a.severity) - SEVERITIES.indexOf(b.severity));
}

/** @type {((text: string, at?: number[] | null) => Diagnostic)[]} */
const [error, warning, note] = SEVERITIES.map((severity) => (text, at = null) => ({ severity, text, at }));

function* missing({ spawn, entities }) {
  if (!spawn) yield error("There is no spawn: place the ninja.");
  for (const kind of [EXIT, DEATH_BALL]) {
    const count = entities.filter((entity) => entity.kind === kind).length;
    if (count > MOST_COUNTED) yield error(`${count} ${nameOf(kind)}s; at most ${MOST_COUNTED} fit in a level file.`);
  }
  const records = 1 + entities.reduce((sum, entity) => sum + (entity.switch ? 2 : 1), 0);
  if (records > MOST_RECORDS) yield error(`${records} objects; at most ${MOST_RECORDS} fit in a level file.`);
}

/** Objects outside the stage, and objects inside solid tiles if the ninja must touch them. */
function* misplaced(state) {
  for (const { name, at, touched } of objects(state)) {
    const [x, y] = at;
    if (x > STEPS_X || y > STEPS_Y) yield warning(`The ${name} stands outside the stage, at ${placeText(at)}.`, at);
    else if (touched && isInsideSolid(state, x, y)) {
      const verb = name === "spawn" ? "is" : "lies";
      yield warning(`The ${name} at ${placeText(at)} ${verb} inside solid tiles.`, at);
    }
  }
}

/** Tiles and entities that the simulator treats differently from the game or leaves out. */
function* unusual({ tiles, entities }) {
  const invalid = [...tiles.keys()].filter((i) => tiles[i] >= NUM_TILES);
  if (invalid.length) {
    const [column, row] = [invalid[0] % 42, Math.floor(invalid[0] / 42)];
    yield warning(
      `tile id ${tiles[invalid[0]]} at column ${column}, row ${row} (the first of ${invalid.length}); ` +
        `ids above ${NUM_TILES - 1} have no geometry`,
    );
  }
  const leftOut = entities.filter(({ kind }) => isLeftOut(kind));
  for (const [name, count] of counted(leftOut.map(({ kind }) => (KINDS.has(kind) ? nameOf(kind) : "unknown entity"))))
    yield warning(
      count === 1 ? `1 ${name} is left out` : `${count} ${name.replace("entity", "entitie")}s are left out`,
    );
  for (const kind of ON_THE_GRID) {
    const inBorder = entities.filter((entity) => entity.kind === kind && isInBorder(entity));
    if (inBorder.length)
      yield warning(
        `a ${nameOf(kind)} (the first of ${inBorder.length}) stands in the border; ` +
          "the simulator treats everything outside the stage as solid for it",
        [inBorder[0].x, inBorder[0].y],
      );
  }
  for (const [kinds, behaviour] of COMPLETIONS) {
    const names = kinds
      .filter((kind) => entities.some((entity) => entity.kind === kind))
      .map((kind) => `${nameOf(kind)}s`);
    if (names.length) yield note(`Here ${names.join(" and ")} ${behaviour} (docs/physics.md, section 8).`);
  }
}

function* pathless({ entities }, reachable) {
  if (!reachable && entities.some(({ kind }) => kind === EXIT))
    yield warning("No path leads from the spawn over an exit switch to its exit: tiles or doors block all paths.");
}

function* notes(state) {
  const places = objects(state).map(({ name, at }) => JSON.stringify([name, at]));
  for (const [place, count] of counted(places)) {
    const [name, at] = JSON.parse(place);
    if (count > 1) yield note(`${count} × ${name} at the same place, ${placeText(at)}.`, at);
  }
  for (const { kind, x, y, switch: its } of state.entities) {
    const far = its ? Math.hypot(its[0] - x, its[1] - y) / STEPS_PER_TILE : 0;
    if (far > FAR_TILES)
      yield note(
        `The switch of the ${nameOf(kind)} at ${placeText([x, y])} is ${far.toFixed(0)} tiles away from it, ` +
          `at ${placeText(its)}.`,
        its,
      );
  }
}

/**
 * Spawn, entities and switches; touched: whether the ninja must touch it.
 * @returns {{name: string, at: [number, number], touched: boolean}[]}
 */
function objects({ spawn, entities }) {
  const found = spawn ? [{ name: "spawn", at: spawn, touched: true }] : [];
  for (const { kind, x, y, switch: its } of entities) {
    found.push({ name: nameOf(kind), at: [x, y], touched: kind === GOLD || kind === EXIT });
    if (its) found.push({ name: `switch of the ${nameOf(kind)}`, at: its, touched: true });
  }
  return found;
}

function isInBorder({ x, y }) {
  const border = STEPS_PER_TILE;
  return x < border || x > STEPS_X - border || y < border || y > STEPS_Y - border;
}

/** True if all points of the pixels within one step of a position are solid. */
function isInsideSolid(state, x, y) {
  for (let py = Math.max(y - 1, 0) * STEP; py < (y + 1) * STEP; py++)
    for (let px = Math.max(x - 1, 0) * STEP; px < (x + 1) * STEP; px++) {
      const tile = tileAt(state, Math.floor(px / TILE) - 1, Math.floor(py / TILE) - 1);
      if (!isSolid(tile, (px % TILE) + 0.5, (py % TILE) + 0.5)) return false;
    }
  return true;
}

/** Number of times that each value occurs, in order of first appearance. */
function counted(values) {
  const counts = new Map();
  for (const value of values) counts.set(value, (counts.get(value) ?? 0) + 1);
  return counts;
}

/** A position in tiles from the outer corner of the stage, as in level texts. */
function placeText([x, y]) {
  return `(${x / STEPS_PER_TILE}, ${y / STEPS_PER_TILE})`;
}
