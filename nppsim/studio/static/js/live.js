/* A game that is being played: inputs, states and looks of its frames. */

import { PlayedRun } from "./documents.js";
import { addBest, addRun } from "./store.js";
import { World } from "./world.js";

export class LiveGame {
  /** level: a level document of engine.js.  total: {code, count, frames, gold, isLast} of the episode to which the
   *  game belongs; frames, gold: sums of the levels before. */
  constructor(level, total = null) {
    this.level = level;
    this.total = total;
    this.start();
  }

  get frame() {
    return this.world.frame;
  }

  get over() {
    return this.frame.o !== "running";
  }

  /** Start the level.  history: entries of another run, after whose last frame to start; null: start at the spawn. */
  start(history = null) {
    this.run = new PlayedRun(this.level);
    this.world = new World(this.level);
    this.history = [{ look: this.world.ninja, input: 0 }]; // one entry per frame, starting with frame 0
    this.fresh = true; // true if the current frame has not been drawn
    if (!history) return;
    this.step(history.slice(1).map(({ input }) => input));
    this.history = [...history];
  }

  /** Play inputs; return the frame documents. */
  step(inputs) {
    const frames = this.run.step(inputs);
    for (const frame of frames) {
      this.world.apply(frame);
      this.history[frame.f] = { look: this.world.ninja, input: frame.i };
    }
    this.fresh = true;
    return frames;
  }

  rewind(to) {
    const frame = this.run.rewind(to);
    this.history.length = frame.f;
    this.world.apply(frame);
    this.history.push({ look: this.world.ninja, input: frame.i });
    this.fresh = true;
  }

  /** Store the run so far under a name. */
  store(label) {
    const { o, g } = this.frame;
    return addRun(this.level, { label, inputs: this.run.inputs, outcome: o, gold: g });
  }

  /** Add the run that has just won to the leaderboard; resolves to the best runs of the level (best), and of an episode
   *  that it completes (episode). */
  async score(name) {
    const { f, g } = this.frame;
    const best = await addBest(this.level.id, { kind: "person", name, frames: f, gold: g });
    if (!this.total?.isLast) return { best };
    const { code, count, frames, gold } = this.total;
    const sums = { frames: frames + f, gold: gold + g, levels: count };
    return { best, episode: await addBest(code, { kind: "person", name, ...sums }) };
  }
}
