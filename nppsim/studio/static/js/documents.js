/* Documents of levels, frames and runs (nppsim/studio/documents.py), computed by the kernels in the page.
 *
 *     const level = levelDocument(engine, levelFromBytes(data), { id, name });
 *     const run = runDocument(level, inputs, "my run");
 */

import { Game } from "../../../wasm/game.js";
import { compileLevel } from "../../../wasm/level.js";
import { COLUMNS, EXIT, KINDS, ROWS, STEP, nameOf } from "./level_model.js";

const MAX_RUN_FRAMES = 100_000; // 28 minutes of play
const MAX_CHANGES = 1_000_000; // entity changes of a run
const CHUNK_VALUES = 1 << 20; // maximum number of entity positions per call of the simulator
const [POSITION_STEPS, SPEED_STEPS, NORMAL_STEPS, AIRBORNE] = [16, 256, 16384, 16]; // as in recording.js
const TRACK_COLUMNS = 8;
const NINJA_COLUMNS = 10; // x, y, vx, vy, state, airborne, walled, floor normal x, y, gold
const EXIT_SWITCH = 4;
const DOORS = [5, 6, 8];
const AIMING = new Set([12, 13, 18, 19, 23]);

/**
 * Return a level document, with the function newGame.
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
  const omitted = records.slice(1).filter(([kind]) => isLeftOut(kind));
  return {
    ...about,
    title: level.title,
    size: [1056, 600],
    tiles: Array.from({ length: ROWS }, (_, row) => [...level.tiles.subarray(COLUMNS * row, COLUMNS * (row + 1))]),
    spawn: [STEP * records[0][1], STEP * records[0][2]],
    entities,
    start: new FrameWriter(game, entities).frame(game.record([]), 0, 0),
    left_out: omitted.map(([kind, x, y]) => ({ name: nameOf(kind), x: STEP * x, y: STEP * y })),
    newGame,
  };
}

const isLeftOut = (kind) => KINDS.get(kind)?.leftOut || kind > 28;

/** Writes a stream of frame documents of a game, each with the entities that changed since the previous one. */
class FrameWriter {
  constructor(game, entities) {
    this.game = game;
    let aims = 0;
    this.aimOf = entities.map(({ type }) => (AIMING.has(type) ? aims++ : -1));
    this.aimCount = aims;
    this.reset();
  }

  /** Include all entities in the next frame document; to be called after a jump in time. */
  reset() {
    this.before = null;
  }

  /** Return a frame document.  frames, row: result of Game.record.  input: byte of the frame. */
  frame(frames, row, input) {
    const [x, y, vx, vy, state, airborne, , nx, ny, gold] = frames.ninja.subarray(NINJA_COLUMNS * row);
    const { frame, outcome } = this.game;
    const all = this.before === null ? { all: true } : {};
    const changes = Object.fromEntries(this.changes(frames, row));
    return { f: frame, n: [x, y, vx, vy, state, nx, ny, airborne], i: input, o: outcome, g: gold, ...all, c: changes };
  }

  /** Return the entities that changed since the last call, or all after a reset: [[index, [bits, x, y, ...aim]],
   *  ...]. */
  changes({ bits, places, aims }, row, round = (value) => value) {
    const { aimOf, aimCount, before } = this;
    const count = aimOf.length;
    const next = before ?? new Array(count);
    const changed = [];
    for (let i = 0; i < count; i++) {
      const at = 2 * (row * count + i);
      const look = [bits[row * count + i], round(places[at]), round(places[at + 1])];
      if (aimOf[i] >= 0) {
        const aim = 3 * (row * aimCount + aimOf[i]);
        look.push(round(aims[aim]), round(aims[aim + 1]), round(aims[aim + 2]));
      }
      if (before && look.every((value, k) => value === before[i][k])) continue;
      next[i] = look;
      changed.push([i, look]);
    }
    this.before = next;
    return changed;
  }
}

/**
 * A game with its inputs, which can return to any frame.  It stores a snapshot of the state every 60 frames, less
 * often on levels with large states.
 */
export class PlayedRun {
  /** level: a level document of this module. */
  constructor(level) {
    this.newGame = level.newGame;
    this.probe = null; // a second game, for states of earlier frames
    this.game = level.newGame();
    this.frames = new FrameWriter(this.game, level.entities);
    this.frames.changes(this.game.record([]), 0);
    this.parts = new FrameWriter(this.game, level.entities);
    this.inputs = [];
    this.snapshots = [this.game.snapshot()];
    const states = (16 << 20) / this.snapshots[0].length;
    this.interval = Math.max(60, Math.ceil(MAX_RUN_FRAMES / states));
  }

  /** Play inputs until they end, or until a win or death; return a frame document for each frame played. */
  step(inputs) {
    const documents = [];
    this.play(inputs, 1, (played, row) => documents.push(this.frames.frame(played, row, this.inputs.at(-1))));
    return documents;
  }

  /** Return to a frame, forget the inputs after it, and return its frame document. */
  rewind(frame) {
    const snapshot = Math.floor(frame / this.interval);
    this.game.restore(this.snapshots[snapshot]);
    this.game.play(this.inputs.slice(snapshot * this.interval, frame));
    this.inputs.length = frame;
    this.snapshots.length = snapshot + 1;
    this.frames.reset();
    return this.frames.frame(this.game.record([]), 0, this.inputs.at(-1) ?? 0);
  }

  /** Replace all inputs after a frame; return the frames after it as a run part. */
  edit(frame, inputs) {
    this.rewind(frame);
    this.parts.reset();
    this.parts.changes(this.game.record([]), 0, rounded);
    return this.extend(inputs);
  }

  /** Play inputs; return the frames as a run part: {outcome, frames, inputs, track, changes}. */
  extend(inputs) {
    const begin = this.inputs.length;
    const track = new Int16Array(TRACK_COLUMNS * inputs.length);
    const changes = [];
    const limited = (value) => Math.min(Math.max(nearest(value), -32768), 32767);
    this.play(inputs, CHUNK_VALUES, (played, row) => {
      const [x, y, vx, vy, state, airborne, , nx, ny, gold] = played.ninja.subarray(NINJA_COLUMNS * row);
      const frame = this.inputs.length;
      const numbers = [x * POSITION_STEPS, y * POSITION_STEPS, vx * SPEED_STEPS, vy * SPEED_STEPS];
      numbers.push(state + AIRBORNE * airborne, nx * NORMAL_STEPS, ny * NORMAL_STEPS, gold);
      track.set(numbers.map(limited), TRACK_COLUMNS * (frame - begin - 1));
      for (const [i, look] of this.parts.changes(played, row, rounded)) changes.push([frame, i, ...look]);
      if (changes.length > MAX_CHANGES) throw new Error("too many entities move in this run: shorten it");
    });
    const frames = this.inputs.length;
    const packed = new Uint8Array(track.buffer, 0, 2 * TRACK_COLUMNS * (frames - begin)).slice();
    const played = Uint8Array.from(this.inputs.slice(begin));
    return { outcome: this.game.outcome, frames, inputs: played, track: packed, changes };
  }

  /** Return the path [[x, y], ...] and the outcome for each of some input bytes, held from a frame on. */
  preview(frame, held, duration) {
    const after = this.inputs.slice(frame);
    this.rewind(frame);
    const state = this.game.snapshot();
    const { x, y } = this.game.ninja;
    const branches = held.map((byte) => {
      this.game.restore(state);
      const { ninja, count } = this.game.record(new Array(duration).fill(byte));
      const points = Array.from({ length: count }, (_, row) => [...ninja.subarray(10 * row, 10 * row + 2)]);
      return { points: [[x, y], ...points], outcome: this.game.outcome };
    });
    this.game.restore(state);
    this.play(after, CHUNK_VALUES, () => {});
    return branches;
  }

  /** Return the ninja's record (NINJA_DTYPE) after each of the frames from..to. */
  states(from, to) {
    this.probe ??= this.newGame();
    const snapshot = Math.floor(from / this.interval);
    this.probe.restore(this.snapshots[snapshot]);
    this.probe.play(this.inputs.slice(snapshot * this.interval, from));
    const states = [{ ...this.probe.ninja }];
    for (let f = from; f < to; f++) {
      this.probe.play([this.inputs[f]]);
      states.push({ ...this.probe.ninja });
    }
    return states;
  }

  /** Play inputs in parts, store them and the snapshots, and call visit(frames, row) for each frame. */
  play(inputs, values, visit) {
    if (this.inputs.length + inputs.length > MAX_RUN_FRAMES)
      throw new Error(`a run has at most ${MAX_RUN_FRAMES.toLocaleString("en")} frames; store it and start again`);
    const most = Math.min(Math.max(Math.floor(values / (2 * this.game.entityCount + 1)), 1), this.interval);
    for (let at = 0; at < inputs.length;) {
      const room = this.interval - (this.inputs.length % this.interval);
      const part = inputs.slice(at, at + Math.min(most, room));
      const played = this.game.record(part);
      for (let row = 0; row < played.count; row++) {
        this.inputs.push(part[row]);
        visit(played, row);
      }
      if (played.count && this.inputs.length % this.interval === 0) this.snapshots.push(this.game.snapshot());
      if (played.count < part.length) return;
      at += part.length;
    }
  }
}

/** Play inputs on a level document of this module, and return the run document. */
export function runDocument(level, inputs, label = "", colour = null) {
  const run = new PlayedRun(level);
  return { label, colour, level: level.id, start: level.start, ...run.edit(0, inputs) };
}

/** Round to the nearest whole number, to an even one from the middle, as numpy does. */
function nearest(value) {
  const whole = Math.round(value);
  return whole - value === 0.5 && whole % 2 !== 0 ? whole - 1 : whole;
}

function rounded(value) {
  return nearest(value * POSITION_STEPS) / POSITION_STEPS;
}
