/* Timing of frames: 60 per second, independent of the refresh rate of the display. */

export const FRAME_MS = 1000 / 60;
const MOST = 15; // frames; a longer lag is dropped
// Lag, in frames, within which a display tick advances exactly one frame, so that jitter of a 60 Hz display has no
// effect.
const [EARLY, LATE] = [0.25, 1.75];

export class Clock {
  constructor() {
    this.rate = 1; // speed relative to real time
    /** @type {number | null} */
    this.before = null; // time of the last tick
    this.lag = 0; // frames
  }

  reset() {
    [this.before, this.lag] = [null, 0];
  }

  /** Return the number of frames to advance at a display tick.  now: time of the tick, ms. */
  due(now) {
    if (this.before === null) this.before = now - FRAME_MS / this.rate;
    this.lag += ((now - this.before) / FRAME_MS) * this.rate;
    this.before = now;
    if (this.lag > MOST) this.lag = 1;
    const frames = this.lag < EARLY ? 0 : this.lag <= LATE ? 1 : Math.round(this.lag);
    this.lag -= frames;
    return frames;
  }
}

/** Return the seconds left on the game's clock, the score of a run that wins at that time (see
 *  nppsim/replays/score.py). */
export function score(frames, gold, levels = 1) {
  return 90 + 2 * gold - Math.max(frames - levels, 0) / 60;
}

/** Statistics of live play: gaps between drawn frames, and latency from an input to its state. */
export class Pacing {
  constructor() {
    this.gaps = 0;
    this.even = 0;
    this.worst = 0;
    this.before = null;
    this.latencies = [];
  }

  /** Record that a new state is drawn.  now: time of the display tick, ms. */
  drawn(now) {
    if (this.before !== null) {
      const gap = now - this.before;
      this.gaps += 1;
      if (gap <= 20) this.even += 1;
      this.worst = Math.max(this.worst, gap);
    }
    this.before = now;
  }

  /** Ignore the gap until the next frame, because play pauses. */
  pause() {
    this.before = null;
  }

  answered(ms) {
    this.latencies.push(ms);
    if (this.latencies.length > 3600) this.latencies.shift();
  }

  /** Return {frames, share of gaps within 20 ms, worst gap, median and late (99 %) latency; ms}; null without any
   *  gap. */
  summary() {
    if (!this.gaps) return null;
    const sorted = [...this.latencies].sort((a, b) => a - b);
    const quantile = (q) => sorted[Math.min(Math.floor(q * sorted.length), sorted.length - 1)] ?? 0;
    return {
      frames: this.gaps,
      share: this.even / this.gaps,
      worst: this.worst,
      median: quantile(0.5),
      late: quantile(0.99),
    };
  }
}

/** Format a number of frames as seconds. */
export function seconds(frames) {
  return `${(frames / 60).toFixed(3)} s`;
}
