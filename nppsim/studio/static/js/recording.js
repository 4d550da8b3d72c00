/* A run of a level: plays inputs with the kernels, and gives access to all of its frames.
 *
 *     const run = new Recording(level, { label: "my run", inputs });  // level: level document
 *     run.play([2, 2, 3]);
 *     run.edit(60, inputs);                                           // replaces the inputs after 60 frames
 *     scene.draw({ world: run.seek(30) });
 */

import { aimsOf, entityLook, ninjaOf } from "./documents.js";
import { Gait } from "./ninja.js";
import { World } from "./world.js";

const MAX_RUN_FRAMES = 100_000; // 28 minutes of play
const MAX_CHANGES = 1_000_000; // entity changes of a run
const CHUNK_VALUES = 1 << 20; // maximum number of entity positions per call of the simulator
const SNAPSHOT_BYTES = 16 << 20; // of all snapshots of a run of MAX_RUN_FRAMES
const LEAST_INTERVAL = 60; // frames between two snapshots
const KEY_FRAMES = 240; // interval of the frames for which all entities are stored
const APART_PX = 1; // distance from which two runs count as diverged, as in nppsim/replays/diff.py

/** outcome: "running", "won" or "died".  inputs: input byte of each frame.  ninjas, looks, points: the ninja (ninjaOf),
 *  its look and [x, y] after 0, 1, ... frames.  world: entities at the frame of the last seek. */
export class Recording {
  /**
   * @param {any} level - level document
   * @param {{label?: string, colour?: string | null, inputs?: number[] | Uint8Array}} [about]
   */
  constructor(level, { label = "", colour = null, inputs = [] } = {}) {
    this.level = level;
    this.label = label;
    this.colour = colour;
    this.game = level.newGame();
    this.snapshots = [this.game.snapshot()];
    const states = SNAPSHOT_BYTES / this.snapshots[0].length;
    this.interval = Math.max(LEAST_INTERVAL, Math.ceil(MAX_RUN_FRAMES / states));
    this.aims = aimsOf(level.entities);
    this.entities = [...level.start.looks]; // after the last frame
    this.outcome = this.game.outcome;
    this.inputs = [];
    this.world = new World(level);
    this.gait = new Gait();
    this.ninjas = [level.start.ninja];
    this.looks = [this.gait.after(level.start.ninja, 0)];
    this.points = [this.looks[0].at];
    this.changes = []; // [frame, index of an entity, its look (entityLook)]
    this.stored = new Map([[0, { looks: [...this.world.looks], taken: 0 }]]); // taken: number of changes applied
    this.at = 0;
    this.taken = 0;
    this.probe = null; // a second game, for states of earlier frames
    this.play(inputs);
  }

  get frames() {
    return this.inputs.length;
  }

  // -------------------------------------------------------------------------------------------------------------------
  // Changes

  /** Play inputs until they end, or until a win or death.  @param {number[] | Uint8Array} inputs */
  play(inputs) {
    if (this.frames + inputs.length > MAX_RUN_FRAMES)
      throw new Error(`a run has at most ${MAX_RUN_FRAMES.toLocaleString("en")} frames; store it and start again`);
    const { interval, game } = this;
    const most = Math.max(Math.floor(CHUNK_VALUES / (2 * game.entityCount + 1)), 1);
    for (let at = 0, count = 1; at < inputs.length && count; at += count) {
      const room = interval - (this.frames % interval);
      const part = inputs.slice(at, at + Math.min(most, room));
      const played = game.record(part);
      ({ count } = played);
      for (let row = 0; row < count; row++) this.add(part[row], played, row);
      if (count && this.frames % interval === 0) this.snapshots.push(game.snapshot());
    }
    this.outcome = game.outcome;
  }

  add(byte, played, row) {
    this.inputs.push(byte);
    const ninja = ninjaOf(played, row);
    const look = this.gait.after(ninja, byte);
    this.ninjas.push(ninja);
    this.looks.push(look);
    this.points.push(look.at);
    for (let i = 0; i < this.entities.length; i++) {
      const next = entityLook(played, row, i, this.aims);
      const before = this.entities[i];
      if (next.every((value, k) => value === before[k])) continue;
      this.entities[i] = next;
      this.changes.push([this.frames, i, next]);
    }
    if (this.changes.length > MAX_CHANGES) throw new Error("too many entities move in this run: shorten it");
  }

  /** Forget all frames after a frame. */
  rewind(frame) {
    const { game, snapshots, interval } = this;
    const number = Math.floor(frame / interval);
    game.restore(snapshots[number]);
    game.play(this.inputs.slice(number * interval, frame));
    snapshots.length = number + 1;
    this.inputs.length = frame;
    this.ninjas.length = this.looks.length = this.points.length = frame + 1;
    Object.assign(this.gait, this.looks[frame]);
    while (this.changes.length && this.changes[this.changes.length - 1][0] > frame) this.changes.pop();
    const now = game.record([]);
    this.entities = this.entities.map((_, i) => entityLook(now, 0, i, this.aims));
    for (const key of this.stored.keys()) if (key > frame) this.stored.delete(key);
    if (this.at > frame) this.jump(frame);
    this.outcome = game.outcome;
  }

  /** Replace all inputs after a frame. */
  edit(frame, inputs) {
    this.rewind(frame);
    this.play(inputs);
  }

  // -------------------------------------------------------------------------------------------------------------------
  // Frames.  Of a frame after the end, they return the last one.

  input(frame) {
    return frame > 0 ? this.inputs[Math.min(frame, this.frames) - 1] : 0;
  }

  ninja(frame) {
    return this.ninjas[Math.min(Math.max(frame, 0), this.frames)];
  }

  gold(frame = this.frames) {
    return this.ninja(frame)[8];
  }

  /** Return the speed after a frame, px per frame. */
  speed(frame) {
    return Math.hypot(this.ninja(frame)[2], this.ninja(frame)[3]);
  }

  look(frame) {
    return this.looks[Math.min(Math.max(frame, 0), this.frames)];
  }

  /** Return the World at a frame. */
  seek(frame) {
    const wanted = Math.min(Math.max(frame, 0), this.frames);
    if (wanted < this.at || wanted > this.at + KEY_FRAMES) this.jump(wanted);
    while (this.at < wanted) this.advance();
    this.world.ninja = this.look(wanted);
    return this.world;
  }

  jump(wanted) {
    let key = wanted - (wanted % KEY_FRAMES);
    let found = this.stored.get(key);
    while (!found) found = this.stored.get((key -= KEY_FRAMES));
    if (wanted > this.at && key < this.at) return;
    [this.at, this.taken, this.world.looks] = [key, found.taken, [...found.looks]];
    this.world.version += 1;
  }

  advance() {
    this.at += 1;
    for (; this.taken < this.changes.length && this.changes[this.taken][0] <= this.at; this.taken++) {
      const [, index, look] = this.changes[this.taken];
      this.world.change(index, look);
    }
    if (this.at % KEY_FRAMES === 0) this.stored.set(this.at, { looks: [...this.world.looks], taken: this.taken });
  }

  /** Return a game of its own at a frame. */
  gameAt(frame) {
    this.probe ??= this.level.newGame();
    const number = Math.floor(frame / this.interval);
    this.probe.restore(this.snapshots[number]);
    this.probe.play(this.inputs.slice(number * this.interval, frame));
    return this.probe;
  }

  /** Return the path [[x, y], ...] and the outcome for each of some input bytes, held from a frame on. */
  preview(frame, held, duration) {
    const game = this.gameAt(frame);
    const state = game.snapshot();
    return held.map((byte) => {
      game.restore(state);
      const played = game.record(new Array(duration).fill(byte));
      const points = Array.from({ length: played.count }, (_, row) => ninjaOf(played, row).slice(0, 2));
      return { points: [this.points[frame], ...points], outcome: game.outcome };
    });
  }

  /** Return the ninja's record (NINJA_DTYPE) after each of the frames from..to. */
  states(from, to) {
    const game = this.gameAt(from);
    const states = [{ ...game.ninja }];
    for (let f = from; f < to; f++) {
      game.play([this.inputs[f]]);
      states.push({ ...game.ninja });
    }
    return states;
  }
}

/** Return the first frame at which two recordings have diverged; null if there is none. */
export function partingFrame(a, b) {
  const common = Math.min(a.frames, b.frames);
  for (let f = 1; f <= common; f++) {
    const [[x, y], [u, v]] = [a.points[f], b.points[f]];
    if (Math.hypot(x - u, y - v) > APART_PX) return f;
  }
  return null;
}
