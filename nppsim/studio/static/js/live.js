/* A game on the server: what is sent is played, what comes back is drawn.  The protocol is in docs/lab/studio.md. */

import { World } from "./world.js";

const MOST_UNANSWERED = 30; // steps on their way; more means that the server has stalled

export class LiveGame {
  /** socket: a Socket of api.js for play; level: a level document; answered: called with the ms that each step took. */
  constructor(socket, level, answered = () => {}) {
    [this.socket, this.level, this.answered] = [socket, level, answered];
    this.world = new World(level);
    this.history = [{ look: this.world.ninja, input: 0 }]; // after frame 0, 1, ...
    this.unanswered = 0;
    this.fresh = true; // not drawn yet
  }

  /** The frame document now. */
  get frame() {
    return this.world.frame;
  }

  get over() {
    return this.frame.o !== "running";
  }

  /** Whether the server keeps up. */
  get ready() {
    return this.socket.isOpen && this.unanswered < MOST_UNANSWERED;
  }

  /** True if every request has been answered. */
  get settled() {
    return this.unanswered === 0;
  }

  /** The input bytes that led here. */
  get inputs() {
    return Uint8Array.from(this.history.slice(1), ({ input }) => input);
  }

  /** Start the level.  history: what leads to the frame to start at, if that is not the first: of a Recording. */
  async start(history = null) {
    const inputs = history ? Uint8Array.from(history.slice(1), ({ input }) => input) : new Uint8Array();
    const text = Array.from(inputs, (byte) => String.fromCharCode(byte)).join(""); // as arguments, 100,000 are too many for some browsers
    const answer = await this.ask({ start: this.level.id, inputs: btoa(text) });
    if (history) this.history = [...history];
    this.jump(answer.frame);
  }

  /** Play frames with these input bytes. */
  async step(inputs) {
    const sent = performance.now();
    const answer = await this.ask({ step: inputs });
    this.answered(performance.now() - sent);
    for (const frame of answer.frames) {
      this.world.apply(frame);
      this.history[frame.f] = { look: this.world.ninja, input: frame.i };
    }
    this.fresh = true;
  }

  /** Go back to a frame. */
  async rewind(frame) {
    this.jump((await this.ask({ rewind: frame })).frame);
  }

  /** Keep the run so far; resolves to its card. */
  async keep(label) {
    return (await this.ask({ keep: { label } })).stored;
  }

  /** Enter the run that has just won into the leaderboard; resolves to the best runs of the level. */
  async score(name) {
    return (await this.ask({ score: { name } })).best;
  }

  close() {
    this.socket.close();
  }

  jump(frame) {
    this.history.length = Math.min(this.history.length, frame.f + 1);
    this.world.apply(frame);
    this.history[frame.f] = { look: this.world.ninja, input: frame.i };
    this.fresh = true;
  }

  async ask(message) {
    this.unanswered += 1;
    try {
      return await this.socket.ask(message);
    } finally {
      this.unanswered -= 1;
    }
  }
}
