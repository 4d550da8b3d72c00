/* When the next frame is due: exactly 60 a second, whatever the rate of the display. */

export const FRAME_MS = 1000 / 60;
const MOST = 15; // frames; after a longer stop the time is not made up for
// Frames by which the clock may be early or late while the display shows one frame per tick: a display of 60 Hz never gets
// none or two because its ticks jitter.
const [EARLY, LATE] = [0.25, 1.75];

export class Clock {
  constructor() {
    this.rate = 1; // of real time
    this.reset();
  }

  /** Restart: earlier time does not count. */
  reset() {
    [this.before, this.lag] = [null, 0];
  }

  /** How many frames to advance at a display tick.  now: its time, ms. */
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

/** Time left on the game's clock, which is the score of a run that wins then, s; as in nppsim/replays/score.py. */
export function score(frames, gold) {
  return 90 + 2 * gold - frames / 60;
}

/** How evenly new states come: the share of gaps within 20 ms, and the time from an input to the state it led to. */
export class Pacing {
  constructor() {
    [this.gaps, this.even, this.worst, this.before] = [0, 0, 0, null];
    this.latencies = [];
  }

  /** A new state is drawn at a display tick.  now: ms. */
  drawn(now) {
    if (this.before !== null) {
      const gap = now - this.before;
      this.gaps += 1;
      if (gap <= 20) this.even += 1;
      this.worst = Math.max(this.worst, gap);
    }
    this.before = now;
  }

  /** Play pauses: the gap until it goes on does not count. */
  rest() {
    this.before = null;
  }

  /** An input has led to a state.  ms: how long that took. */
  answered(ms) {
    this.latencies.push(ms);
    if (this.latencies.length > 3600) this.latencies.shift();
  }

  /** {frames, share of gaps within 20 ms, worst gap in ms, median and 99 % latency in ms}; null before anything was drawn. */
  summary() {
    if (!this.gaps) return null;
    const sorted = [...this.latencies].sort((a, b) => a - b);
    const quantile = (q) => sorted[Math.min(Math.floor(q * sorted.length), sorted.length - 1)] ?? 0;
    return { frames: this.gaps, share: this.even / this.gaps, worst: this.worst, median: quantile(0.5), late: quantile(0.99) };
  }
}
