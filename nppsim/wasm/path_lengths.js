/* Lengths of the paths to the objective, which change with the doors and exits of a level (nppsim.paths). */

import { computePaths } from "./level.js";

const [SPACING, UNIT] = [12, 1.2]; // px between lattice points; px, unit of the lengths
const [NODES_X, NODES_Y] = [89, 51]; // lattice points
const WALL = 65534; // first value without a path: a blocked point, then a point without a path
export const MAX_PATH = 8000; // px; stands for "no path"

export class PathLengths {
  /**
   * @param {import("./kernels.js").Kernels} kernels - of the module "game"
   * @param {import("./level.js").CompiledLevel} compiled
   * @param {Object<string, any>} paths - result of computePaths
   */
  constructor(kernels, compiled, { nodes, effects }) {
    this.kernels = kernels;
    this.given = kernels.copyIn({ world: compiled.world, nodes: { ...nodes, shape: nodes.shape.slice(1) }, effects });
    this.record = { ...kernels.record(this.given.world.level, 0) };
    this.known = new Map(); // state of doors and exits -> lengths
  }

  /**
   * Lengths from all points to the objective of a state (the exit switch, later the exit); the same array as long as
   * they do not change.
   * @param {import("./kernels.js").Kernels} owner - in whose memory the state is
   * @param {Record<string, any>} state
   * @returns {Uint16Array} x is the slow axis; in steps of 1.2 px
   */
  of(owner, state) {
    const closed = this.flags(owner, state, "closed", "switches");
    const opened = this.flags(owner, state, "clock", "exits").map((clock) => (clock > 0 ? 1 : 0));
    const taken = owner.bytes(state.ninja)[owner.records.ninja.fields.switch_taken[1]] ? 1 : 0;
    const key = [...closed, ...opened, taken].join();
    if (!this.known.has(key)) this.known.set(key, this.compute(closed, opened, taken));
    return this.known.get(key);
  }

  compute(closed, opened, taken) {
    const { kernels, given } = this;
    const mark = kernels.mark();
    const bytes = (values) => kernels.copyIn({ dtype: "uint8", shape: [values.length], bytes: values });
    const [count] = given.nodes.shape;
    const [distance, next_step] = [kernels.array("uint16", [2, count]), kernels.array("uint8", [2, count])];
    const doors = { closed: bytes(closed), opened: bytes(opened) };
    kernels.call("compute_fields", { ...given, level: 0, ...doors, distance, next_step });
    const lengths = kernels.values(distance).slice(taken * count, (taken + 1) * count);
    kernels.release(mark);
    return lengths;
  }

  /** A field of the entities of a range of LEVEL_DTYPE, "switches" or "exits". */
  flags(owner, state, field, range) {
    const { size, fields } = owner.records.entity;
    const bytes = owner.bytes(state.entities);
    const [first, end] = [this.record[`${range}_first`], this.record[`${range}_end`]];
    const begin = size * (first - this.record.entity_first) + fields[field][1];
    return Array.from({ length: end - first }, (_, i) => bytes[begin + size * i]);
  }
}

/**
 * Play a run.
 * @param {import("./game.js").Game} game - at the start of the level
 * @param {ArrayLike<number>} inputs
 * @returns {{length: number, points: number[][], left: number[], won: boolean, frames: number}} length: of the path
 *   from the start, px; points, left: position and length of the remaining path after each frame
 */
export function followPath(game, inputs) {
  const { kernels, compiled } = game;
  const paths = computePaths(kernels, compiled);
  const lengths = new PathLengths(kernels, compiled, paths);
  /** @type {number[][]} */
  const points = [];
  /** @type {number[]} */
  const left = [];
  for (const byte of Array.from(inputs)) {
    const { count, ninja } = game.record([byte]);
    if (!count) break;
    const [x, y] = ninja;
    points.push([x, y]);
    // from a lattice, they may be 0 before the win, or above 0 at the win
    left.push(Math.max(lengthFrom(lengths.of(kernels, game.state), x, y), 1));
  }
  const won = game.outcome === "won";
  if (won) left[left.length - 1] = 0;
  const [length] = new Float32Array(paths.length.bytes.buffer);
  return { length, points, left, won, frames: points.length };
}

/** Length in px of the path from a position; MAX_PATH if there is none (nppsim.paths.nearest_node). */
function lengthFrom(lengths, x, y) {
  const [i, j] = [Math.trunc(x / SPACING), Math.trunc(y / SPACING)];
  for (const ring of [0, 1]) {
    let [best, free] = [Infinity, false];
    for (let a = Math.max(i - ring, 0); a < Math.min(i + 2 + ring, NODES_X); a++) {
      for (let b = Math.max(j - ring, 0); b < Math.min(j + 2 + ring, NODES_Y); b++) {
        const length = lengths[a * NODES_Y + b];
        free ||= length !== WALL;
        const [dx, dy] = [x - SPACING * a, y - SPACING * b];
        if (length < WALL) best = Math.min(best, length * UNIT + Math.sqrt(dx * dx + dy * dy));
      }
    }
    if (best < Infinity) return Math.min(best, MAX_PATH - UNIT);
    if (free) return MAX_PATH;
  }
  return MAX_PATH;
}
