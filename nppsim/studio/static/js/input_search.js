/* Search for better inputs of selected frames: shifts, toggles and random changes, played one after another.
 *
 *     const search = new InputSearch(game, { inputs, from, to, goal: "exit" });
 *     for (const gain of search.run(1000)) ...            // tries 1000 changes
 *
 * Goals: GOALS.  A gain is a change of the inputs that is better than all before.
 */

import { JUMP, LEFT, RIGHT } from "./input_byte.js";
import { concatenated } from "./arrays.js";

export const GOALS = {
  exit: "earliest exit",
  switch: "earliest exit switch",
  gold: "most gold",
  speed: "highest speed after the selection",
  point: "nearest to a point",
};
const KEYS = [LEFT, JUMP, RIGHT];
const MOST_SHIFT = 12; // frames
const MOST_EDITS = 3; // of a random change
const NINJA_COLUMNS = 10; // of Game.record: x, y, vx, vy, state, airborne, walled, floor normal, gold
const WON = 8; // state of the ninja

/**
 * A better run.
 * @typedef {{inputs: Uint8Array, value: number, frame: number}} Gain - value: of the goal, larger is better.  frame:
 *   at which it is reached, counted from 1
 */

export class InputSearch {
  /**
   * @param {import("../../../wasm/game.js").Game} game - of the level
   * @param {{inputs: Uint8Array, from: number, to: number, goal: string, point?: number[], switches: number[],
   *   seed?: number}} request - from, to: first and last frame that may change, counted from 0.  point: x, y.
   *   switches: numbers of the exit switches among the entities
   */
  constructor(game, { inputs, from, to, goal, point = [0, 0], switches, seed = 1 }) {
    this.game = game;
    this.from = from;
    this.goal = goal;
    this.point = point;
    this.switches = switches;
    this.random = seed;
    this.before = inputs.subarray(0, from);
    this.selected = inputs.slice(from, to + 1);
    this.after = inputs.subarray(to + 1);
    game.play(this.before);
    if (game.frame < from || game.outcome !== "running") throw new Error("the run ends before the selected frames");
    this.state = game.snapshot();
    this.tried = 0;
    this.seen = new Set();
    this.best = null;
    this.best = this.evaluate(this.selected);
    this.systematic = [...this.shifts(), ...this.toggles()];
  }

  /** Try a number of changes; yields the gains.  @returns {Generator<Gain>} */
  *run(count) {
    for (let i = 0; i < count; i++) {
      const selected = this.systematic.shift() ?? this.randomChange();
      this.tried += 1;
      const key = selected.join();
      if (this.seen.has(key)) continue;
      this.seen.add(key);
      const found = this.evaluate(selected);
      if (found.value <= this.best.value) continue;
      this.selected = selected;
      this.best = found;
      yield found;
    }
  }

  /** Play changed frames; returns {value, frame, inputs}. */
  evaluate(selected) {
    const { game, goal, best } = this;
    game.restore(this.state);
    const begin = this.from;
    let inputs = concatenated(Uint8Array, selected, this.after);
    if (goal === "speed") inputs = inputs.subarray(0, selected.length);
    // what cannot be better any more need not be played
    else if ((goal === "exit" || goal === "switch") && best && best.value > -Infinity)
      inputs = inputs.subarray(0, best.frame - begin - 1);
    const all = () => concatenated(Uint8Array, this.before, selected, this.after);
    if (goal === "exit") {
      const frame = begin + game.play(inputs);
      return { value: game.outcome === "won" ? -frame : -Infinity, frame, inputs: all().subarray(0, frame) };
    }
    const played = game.record(inputs);
    const row = (k) => played.ninja.subarray(NINJA_COLUMNS * k, NINJA_COLUMNS * (k + 1));
    let [value, frame] = [-Infinity, begin + played.count];
    if (goal === "switch") {
      for (let k = 0; k < played.count && value === -Infinity; k++)
        if (this.switches.some((entity) => !(played.bits[k * game.entityCount + entity] & 1)))
          [value, frame] = [-(begin + k + 1), begin + k + 1];
    } else if (goal === "point") {
      for (let k = 0; k < played.count; k++) {
        const [x, y] = row(k);
        const near = -Math.hypot(x - this.point[0], y - this.point[1]);
        if (near > value) [value, frame] = [near, begin + k + 1];
      }
    } else if (game.outcome !== "died" && played.count) {
      const [, , vx, vy, , , , , , gold] = row(played.count - 1);
      if (goal === "gold") value = gold;
      else if (played.count === inputs.length || row(played.count - 1)[4] === WON) value = Math.hypot(vx, vy);
    }
    return { value, frame, inputs: all() };
  }

  /** The selection later and earlier, and with one frame more or less at each place. */
  *shifts() {
    const { selected } = this;
    for (let by = 1; by <= Math.min(MOST_SHIFT, selected.length - 1); by++) {
      yield concatenated(Uint8Array, new Uint8Array(by).fill(selected[0]), selected.subarray(0, -by));
      yield concatenated(Uint8Array, selected.subarray(by), new Uint8Array(by).fill(selected[selected.length - 1]));
    }
    for (let at = 0; at < selected.length; at++) {
      if (selected.length > 1) yield concatenated(Uint8Array, selected.subarray(0, at), selected.subarray(at + 1));
      yield concatenated(Uint8Array, selected.subarray(0, at + 1), selected.subarray(at));
    }
  }

  /** Each key toggled in each frame, and from each frame to the end. */
  *toggles() {
    for (const bit of KEYS) {
      for (let at = 0; at < this.selected.length; at++) {
        for (const end of [at + 1, this.selected.length]) yield this.toggled(this.selected, bit, at, end);
      }
    }
  }

  toggled(selected, bit, from, to) {
    return selected.map((byte, i) => (i >= from && i < to ? byte ^ bit : byte));
  }

  /** One to three random edits of the best selection: a key toggled, a frame added or removed. */
  randomChange() {
    let selected = this.selected;
    for (let edits = 1 + this.below(MOST_EDITS); edits; edits--) {
      const at = this.below(selected.length);
      const kind = this.below(4);
      if (kind === 0 && selected.length > 1)
        selected = concatenated(Uint8Array, selected.subarray(0, at), selected.subarray(at + 1));
      else if (kind === 1) selected = concatenated(Uint8Array, selected.subarray(0, at + 1), selected.subarray(at));
      else selected = this.toggled(selected, KEYS[this.below(3)], at, at + 1 + this.below(selected.length - at));
    }
    return selected;
  }

  /** Return a pseudorandom number below a limit (Park and Miller). */
  below(limit) {
    this.random = (this.random * 48271) % 2147483647;
    return this.random % limit;
  }
}
