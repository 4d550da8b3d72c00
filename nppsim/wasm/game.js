/* Play one level step by step, with any number of frames per call.
 *
 *     const module = await loadModule("game");
 *     const game = new Game(module, compileLevel(new Kernels(module), level));
 *     game.play([2, 2, 3]);
 *     const state = game.snapshot();
 *     game.restore(state);
 *
 * The results are those of nppsim.simulate, bit for bit.
 */
import { Kernels } from "./kernels.js";
import { gameStates } from "./states.js";

const [DEAD, CELEBRATING] = [6, 8]; // states of the ninja
const FRAME_COLUMNS = 10; // nppsim.simulate.FRAME_COLUMNS
const AIMING = new Set([12, 13, 18, 19, 23]); // types of entities: lasers, turrets and shooting drones

/**
 * Frames that were played; row k is the state after frame k + 1 of the call.
 * @typedef {object} Frames
 * @property {number} count
 * @property {Float64Array} ninja - 10 per row: x, y, vx, vy, state, airborne, walled, floor normal x, y, gold
 * @property {Uint8Array} bits - one per entity and row, see Run.entity_state of nppsim.simulate
 * @property {Float64Array} places - x and y per entity and row, px
 * @property {Float64Array} aims - x, y and kind per aiming entity and row (nppsim.physics.aims)
 */

export class Game {
  /**
   * @param {import("./kernels.js").KernelModule} module - "game"
   * @param {import("./level.js").CompiledLevel} compiled
   */
  constructor(module, compiled) {
    const kernels = new Kernels(module);
    this.kernels = kernels;
    this.compiled = compiled;
    this.world = kernels.copyIn(compiled.world);
    const { rows, state } = gameStates(kernels, this.world, 1);
    this.row = rows;
    this.state = state;
    this.entityCount = this.world.entity.shape[0];
    this.places = new Float64Array(2 * this.entityCount);
    const aiming = [];
    for (let i = 0; i < this.entityCount; i++) {
      const { x, y, type, mover } = kernels.record(this.world.entity, i);
      this.places.set([x, y], 2 * i);
      if (AIMING.has(type)) aiming.push(mover);
    }
    this.aiming = kernels.array("int16", [aiming.length]);
    kernels.values(this.aiming).set(aiming);
    this.record([]); // sets the state to the start of the level
  }

  /** The ninja's record, by name of field (NINJA_DTYPE); valid until the next call. */
  get ninja() {
    return this.kernels.record(this.state.ninja, 0);
  }

  /** Records of the entities (ENTITY_DTYPE), in the order of Run.entities; valid until the next call. */
  get entities() {
    return Array.from({ length: this.entityCount }, (_, i) => this.kernels.record(this.state.entities, 0, i));
  }

  /** Frames since the start. */
  get frame() {
    return this.ninja.frame;
  }

  /** "running", "won" or "died". */
  get outcome() {
    return { [DEAD]: "died", [CELEBRATING]: "won" }[this.ninja.state] ?? "running";
  }

  /**
   * Play inputs until they end, or until a win or death.
   * @param {ArrayLike<number>} inputs - one N++ input byte per frame
   * @returns {number} frames played
   */
  play(inputs) {
    const { kernels, state, world } = this;
    const mark = kernels.mark();
    const given = kernels.copyIn({ dtype: "uint8", shape: [inputs.length], bytes: inputs });
    const played = kernels.call("play_on", { state, world, inputs: given });
    kernels.release(mark);
    return played;
  }

  /**
   * Play inputs like ``play``, and return the frames; without inputs, one row with the current state.
   * @param {ArrayLike<number>} inputs
   * @returns {Frames}
   */
  record(inputs) {
    const { kernels, state, world, aiming, entityCount } = this;
    const rows = Math.max(inputs.length, 1);
    const mark = kernels.mark();
    const given = {
      inputs: kernels.copyIn({ dtype: "uint8", shape: [inputs.length], bytes: inputs }),
      frames: kernels.array("float64", [rows, FRAME_COLUMNS]),
      entity_state: kernels.array("uint8", [rows, entityCount]),
      entity_xy: kernels.array("float64", [rows, entityCount, 2]),
      aims: kernels.array("float64", [rows, aiming.shape[0], 3]),
    };
    for (let row = 0; row < rows; row++) kernels.values(given.entity_xy).set(this.places, row * this.places.length);
    const { ninja: ninjas, entities, movers, trail } = state;
    const over = inputs.length > 0 && this.outcome !== "running";
    const count = over ? 0 : kernels.call("run", { ninjas, entities, movers, trail, world, aiming, ...given });
    const frames = {
      count,
      ninja: kernels.values(given.frames).slice(),
      bits: kernels.values(given.entity_state).slice(),
      places: kernels.values(given.entity_xy).slice(),
      aims: kernels.values(given.aims).slice(),
    };
    kernels.release(mark);
    return frames;
  }

  /** Return a copy of the complete state. */
  snapshot() {
    return this.kernels.bytes(this.row).slice();
  }

  /** Restore a state returned by ``snapshot``. */
  restore(snapshot) {
    this.kernels.bytes(this.row).set(snapshot);
  }
}
