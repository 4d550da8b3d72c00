/* Client of a game on the server: sends inputs and receives states (protocol: docs/lab/studio.md). */

import { World } from "./world.js";

const MOST_UNANSWERED = 30; // unanswered requests from which the server counts as stalled

export class LiveGame {
  /** socket: a Socket of api.js.  level: a level document.  answered: called with the duration of each step, ms.
   *  episode: id of the episode to which the game belongs, or undefined. */
  constructor(socket, level, answered = (_) => {}, episode = undefined) {
    this.socket = socket;
    this.level = level;
    this.answered = answered;
    this.episode = episode;
    this.world = new World(level);
    this.history = [{ look: this.world.ninja, input: 0 }]; // one entry per frame, starting with frame 0
    this.unanswered = 0;
    this.fresh = true; // true if the current frame has not been drawn
  }

  get frame() {
    return this.world.frame;
  }

  get over() {
    return this.frame.o !== "running";
  }

  /** True if the server is not stalled. */
  get ready() {
    return this.socket.isOpen && this.unanswered < MOST_UNANSWERED;
  }

  get settled() {
    return this.unanswered === 0;
  }

  /** Start the level.  history: entries of another run, after whose last frame to start; null: start at the spawn. */
  async start(history = null) {
    const bytes = (history ?? [])
      .slice(1)
      .map(({ input }) => String.fromCharCode(input))
      .join("");
    const answer = await this.ask({ start: this.level.id, inputs: btoa(bytes), episode: this.episode });
    if (history) this.history = [...history];
    this.jump(answer.frame);
  }

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

  async rewind(frame) {
    this.jump((await this.ask({ rewind: frame })).frame);
  }

  /** Store the run so far; resolves to its entry in the list of runs. */
  async store(label) {
    return (await this.ask({ store: { label } })).stored;
  }

  /** Add the run that has just won to the leaderboard; resolves to the best runs of the level (best), and of an episode
   *  that it completes (episode). */
  score(name) {
    return this.ask({ score: { name } });
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
