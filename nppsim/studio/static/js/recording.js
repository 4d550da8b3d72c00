/* Random access to the frames of a run document, without the simulator. */

import { concatenated } from "./arrays.js";
import { Gait } from "./ninja.js";
import { World } from "./world.js";

const COLUMNS = 8; // columns of a track
const [POSITION_STEPS, SPEED_STEPS, NORMAL_STEPS, AIRBORNE] = [16, 256, 16384, 16]; // as in nppsim/studio/documents.py
const KEY_FRAMES = 240; // interval of the frames for which all entities are stored
const APART_PX = 1; // distance from which two runs count as diverged, as in nppsim/replays/diff.py

/** label, colour, outcome, frames: as in the document.  inputs: Uint8Array[frames].  points: [x, y] at frame 0, 1, ...
 *  world: entities at the frame of the last seek. */
export class Recording {
  constructor(run, level) {
    this.label = run.label;
    this.colour = run.colour;
    this.outcome = run.outcome;
    this.frames = run.frames;
    this.changes = [...run.changes];
    this.inputs = bytes(run.inputs);
    this.track = new Int16Array(bytes(run.track).buffer);
    this.start = run.start;
    this.world = new World({ ...level, start: run.start });
    this.stored = new Map([[0, { looks: [...this.world.looks], taken: 0 }]]); // taken: number of changes applied
    this.at = 0;
    this.taken = 0;
    this.gait = new Gait();
    this.looks = [];
    this.points = [];
    this.computeLooks();
  }

  /** Forget all frames after a frame. */
  truncate(frame) {
    [this.frames, this.outcome] = [frame, "running"];
    this.inputs = this.inputs.slice(0, frame);
    this.track = this.track.slice(0, frame * COLUMNS);
    this.changes = this.changes.filter(([at]) => at <= frame);
    for (const key of this.stored.keys()) if (key > frame) this.stored.delete(key);
    if (this.at > frame) this.jump(frame);
    [this.gait, this.looks, this.points] = [new Gait(), [], []];
  }

  append(part) {
    this.outcome = part.outcome;
    this.frames = part.frames;
    for (const change of part.changes) this.changes.push(change); // there may be too many for arguments
    this.inputs = concatenated(Uint8Array, this.inputs, bytes(part.inputs));
    this.track = concatenated(Int16Array, this.track, new Int16Array(bytes(part.track).buffer));
    this.computeLooks();
  }

  computeLooks() {
    for (let f = this.looks.length; f <= this.frames; f++)
      this.looks.push(this.gait.after(this.ninja(f), this.input(f)));
    for (let f = this.points.length; f <= this.frames; f++) this.points.push(this.looks[f].at);
  }

  input(frame) {
    return frame > 0 ? this.inputs[Math.min(frame, this.frames) - 1] : 0;
  }

  /** Return the ninja after a frame, as n of a frame document. */
  ninja(frame) {
    if (frame <= 0) return this.start.n;
    const [x, y, vx, vy, state, nx, ny] = this.row(frame);
    return [
      x / POSITION_STEPS,
      y / POSITION_STEPS,
      vx / SPEED_STEPS,
      vy / SPEED_STEPS,
      state % AIRBORNE,
      nx / NORMAL_STEPS,
      ny / NORMAL_STEPS,
      state >= AIRBORNE ? 1 : 0,
    ];
  }

  gold(frame) {
    return frame > 0 ? this.row(frame)[COLUMNS - 1] : 0;
  }

  /** Return the speed after a frame, px per frame. */
  speed(frame) {
    return Math.hypot(this.ninja(frame)[2], this.ninja(frame)[3]);
  }

  /** Return the ninja's look after a frame, or after the last frame if the run is shorter. */
  look(frame) {
    return this.looks[Math.min(Math.max(frame, 0), this.frames)];
  }

  seek(frame) {
    const wanted = Math.min(Math.max(frame, 0), this.frames);
    if (wanted < this.at || wanted > this.at + KEY_FRAMES) this.jump(wanted);
    while (this.at < wanted) this.advance();
    this.world.ninja = this.look(wanted);
    return this.world;
  }

  jump(wanted) {
    let key = wanted - (wanted % KEY_FRAMES);
    while (!this.stored.has(key)) key -= KEY_FRAMES;
    if (wanted > this.at && key < this.at) return;
    const { looks, taken } = this.stored.get(key);
    [this.at, this.taken, this.world.looks] = [key, taken, [...looks]];
    this.world.version += 1;
  }

  advance() {
    this.at += 1;
    for (; this.taken < this.changes.length && this.changes[this.taken][0] <= this.at; this.taken++) {
      const [, index, ...values] = this.changes[this.taken];
      this.world.change(index, values);
    }
    if (this.at % KEY_FRAMES === 0) this.stored.set(this.at, { looks: [...this.world.looks], taken: this.taken });
  }

  row(frame) {
    const begin = (Math.min(frame, this.frames) - 1) * COLUMNS;
    return this.track.subarray(begin, begin + COLUMNS);
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

/** Return the run document of a run without frames. */
export function emptyRun(label, colour, start) {
  return { label, colour, outcome: "running", frames: 0, inputs: "", track: "", changes: [], start };
}

/** Return the bytes of base64 text; typed arrays are returned unchanged. */
export function bytes(base64) {
  if (typeof base64 !== "string") return base64;
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}

/** Return bytes as base64 text. */
export function text(inputs) {
  return btoa(Array.from(inputs, (byte) => String.fromCharCode(byte)).join(""));
}
