/* Records the player's keys, frame by frame, while they are played. */

import { Clock } from "./clock.js";
import { Controls } from "./controls.js";

export class InputRecorder {
  /** play: called with the input bytes of each tick; false: the run is over.  ended: called with all of them at the end
   *  (Uint8Array). */
  constructor(play, ended) {
    this.play = play;
    this.ended = ended;
    this.recorded = [];
    this.clock = new Clock();
    this.controls = new Controls((action) => ["pause", "restart"].includes(action) && this.stop());
    this.request = requestAnimationFrame((now) => this.tick(now));
  }

  destroy() {
    cancelAnimationFrame(this.request);
    this.controls.destroy();
  }

  stop() {
    this.destroy();
    this.ended(Uint8Array.from(this.recorded));
  }

  tick(now) {
    this.request = requestAnimationFrame((next) => this.tick(next));
    if (!this.recorded.length && !this.controls.pressing) return; // waits for the first key
    const inputs = Array.from({ length: this.clock.due(now) }, () => this.controls.sample());
    this.recorded.push(...inputs);
    if (!this.play(inputs)) this.stop();
  }
}
