/* Search for a run of a level by everything that the page has, in two workers: episodes of an agent beside the planner,
 * then shorter runs than the best of these.  scripts/solve.py searches more thoroughly.
 */

import { play } from "./agents.js";
import { get } from "./api.js";
import { actionButton, div, element, seconds } from "./elements.js";
import { levelOf, planned, search } from "./planner.js";
import { Recording } from "./recording.js";
import { addRun } from "./store.js";

const EPISODES = 32; // of the agent
const SHORTENING = 500_000; // frames to simulate

class Solver {
  /** level: level document.  agent: card of an agent that the page plays, or null.  changed: called for new results. */
  constructor(level, agent, changed) {
    this.level = level;
    this.agent = agent;
    this.changed = changed;
    this.best = null; // {inputs, by: who found it, settings: those of the planner with which it can continue}
    this.simulated = this.episodes = this.won = 0; // frames of the planner; episodes of the agent
  }

  /** Return the best run {inputs, by}, or null; after an abort, the best one so far. */
  async solve(signal) {
    try {
      await Promise.all([this.plan(signal), this.agent && this.play(signal)]);
      if (this.best) await this.shorten(signal);
    } catch (error) {
      if (!signal.aborted) throw error;
    }
    return this.best;
  }

  async plan(signal) {
    const progress = (simulated) => this.report(simulated);
    const plan = await planned(this.level, "time", { signal, progress });
    if (plan) this.consider({ inputs: plan.inputs, by: "planner", settings: {} });
  }

  async shorten(signal) {
    const { inputs: known, by, settings } = this.best;
    const before = this.simulated;
    const progress = (simulated, inputs) => {
      if (inputs) this.consider({ inputs, by: `${by}, shortened`, settings });
      this.report(before + simulated);
    };
    const request = { level: levelOf(this.level), known, budget: SHORTENING, ...settings };
    const { inputs, simulated } = await search(request, { signal, progress });
    progress(simulated, inputs);
  }

  report(simulated) {
    this.simulated = simulated;
    this.changed();
  }

  async play(signal) {
    const request = { levels: [levelOf(this.level)], episodes: EPISODES };
    let skip;
    /** @type {number[][]} */
    let parts = [];
    for await (const { frameSkip = skip, decisions = [], ending } of play(this.agent, request, signal)) {
      skip = frameSkip;
      parts.push(...decisions.map(({ inputs }) => [...inputs]));
      if (!ending) continue;
      this.episodes += 1;
      if (ending[1] === "won") {
        this.won += 1;
        const inputs = Uint8Array.from(parts.flat());
        this.consider({ inputs, by: this.agent.name, settings: { frameSkip: skip } });
      }
      parts = [];
      this.changed();
    }
  }

  consider(run) {
    if (!this.best || run.inputs.length < this.best.inputs.length) this.best = run;
  }

  get text() {
    const { best, agent, episodes, won } = this;
    return [
      `planner: ${Math.round(this.simulated / 1000).toLocaleString()} k frames`,
      agent ? `${agent.name}: ${won} of ${episodes} episodes won` : null,
      best ? `best: ${seconds(best.inputs.length)}` : null,
    ]
      .filter(Boolean)
      .join(" · ");
  }
}

/**
 * Return a button that searches for a run of a level and stores the best one, and an element with the progress.
 * @param {any} level - level document
 * @param {any} studio
 * @param {AbortSignal} leaving - aborts when the view closes
 * @param {() => void} stored - called when a run is stored
 */
export function solveButton(level, studio, leaving, stored) {
  /** @type {AbortController | null} */
  let work = null;
  const progress = element("p", { class: "small muted", role: "status" });
  const solve = async () => {
    const mine = new AbortController();
    work = mine;
    const stop = () => mine.abort();
    leaving.addEventListener("abort", stop);
    button.textContent = "Stop the search";
    try {
      const { agents } = await get("agents");
      const agent = agents.find((one) => one.in_page) ?? null;
      const solver = new Solver(level, agent, () => (progress.textContent = solver.text));
      const best = await solver.solve(mine.signal);
      if (leaving.aborted) return;
      if (!best) {
        studio.toast("The search found no run.");
        return;
      }
      await addRun(new Recording(level, { label: `search: ${best.by}`, inputs: best.inputs }));
      studio.toast(`Stored: a run of ${seconds(best.inputs.length)} by ${best.by}`, "good");
      stored();
    } finally {
      leaving.removeEventListener("abort", stop);
      work = null;
      button.textContent = "Search for a run";
    }
  };
  const button = actionButton("Search for a run", () => (work ? work.abort() : solve().catch(studio.failed)), {
    class: "quiet small",
    title: "by the planner and an agent; stores the fastest run",
  });
  return div("", button, progress);
}
