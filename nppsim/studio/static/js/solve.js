/* "Search longer": searches for a better run than par by everything that the page has, in two workers: the planner,
 * and beside it episodes of an agent; then improves the best of these runs.  scripts/solve.py searches more thoroughly.
 */

import { play } from "./agents.js";
import { get } from "./api.js";
import { seconds } from "./clock.js";
import { actionButton, div, element } from "./elements.js";
import { PLANNERS, levelOf, planned, search, storePlan } from "./planner.js";
import { Recording } from "./recording.js";
import { addRun, isBetter, storedPlan } from "./store.js";

const EPISODES = 32; // of the agent, per search
const BUDGET = 1_000_000; // frames that the first search simulates to improve a run; the next one twice as many, ...
const searches = new Map(); // objective and id of a level -> number of searches in this tab

class Solver {
  /** level: level document.  agent: card of an agent that the page plays, or null.  turn: number of earlier searches.
   *  changed: called for new results. */
  constructor(level, objective, agent, turn, changed) {
    this.level = level;
    this.objective = objective;
    this.agent = agent;
    this.turn = turn;
    this.changed = changed;
    this.best = null; // {inputs, gold, by: who found it, settings: of the planner, to improve it}
    this.simulated = this.episodes = this.won = 0; // frames of the planner; episodes of the agent
  }

  /** Return the best run, or null; after an abort, the best one so far. */
  async solve(signal) {
    try {
      await Promise.all([this.plan(signal), this.agent && this.play(signal)]);
      if (this.best) await this.improve(signal);
    } catch (error) {
      if (!signal.aborted) throw error;
    }
    return this.best;
  }

  async plan(signal) {
    const progress = (simulated) => this.report(simulated);
    const plan = await planned(this.level, this.objective, { signal, progress });
    if (plan) this.consider({ by: PLANNERS[this.objective], settings: {}, ...plan });
  }

  async improve(signal) {
    const { inputs: known, by, settings } = this.best;
    const before = this.simulated;
    const improved = by.endsWith(", improved") ? by : `${by}, improved`;
    const progress = (simulated, run) => {
      if (run) this.consider({ inputs: run.inputs, gold: run.gold, by: improved, settings });
      this.report(before + simulated);
    };
    const { objective, turn: seed } = this;
    const request = { level: levelOf(this.level), objective, seed, known, budget: BUDGET * 2 ** seed, ...settings };
    const { simulated, ...run } = await search(request, { signal, progress, most: Infinity });
    progress(simulated, run);
  }

  report(simulated) {
    this.simulated = simulated;
    this.changed();
  }

  async play(signal) {
    const request = { levels: [levelOf(this.level)], episodes: EPISODES, seed: EPISODES * this.turn };
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
        this.consider({ inputs, gold: 0, by: this.agent.name, settings: { frameSkip: skip } });
      }
      parts = [];
      this.changed();
    }
  }

  consider(run) {
    if (!this.best || isBetter(this.objective, run, this.best)) this.best = run;
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
 * Return a button that searches for a better run than par and stores it as par, and an element with the progress.
 * @param {any} level - level document
 * @param {any} studio
 * @param {AbortSignal} leaving - aborts when the view closes
 * @param {() => string} objective - of par
 * @param {() => void} stored - called when a run is stored
 */
export function solveButton(level, studio, leaving, objective, stored) {
  /** @type {AbortController | null} */
  let work = null;
  const progress = element("p", { class: "small muted", role: "status" });
  const solve = async () => {
    const mine = new AbortController();
    work = mine;
    const stop = () => mine.abort();
    leaving.addEventListener("abort", stop);
    button.textContent = "Stop the search";
    const [wanted, key] = [objective(), `${objective()} ${level.id}`];
    try {
      const { agents } = await get("agents");
      const agent = (wanted === "time" && agents.find((one) => one.in_page)) || null;
      const shown = wanted === "time" && level.par ? { inputs: { length: level.par }, gold: 0 } : null;
      const [turn, before] = [searches.get(key) ?? 0, await storedPlan(level.id, wanted)];
      searches.set(key, turn + 1);
      const solver = new Solver(level, wanted, agent, turn, () => (progress.textContent = solver.text));
      const best = await solver.solve(mine.signal);
      if (leaving.aborted) return;
      if (!best || [before, shown].some((par) => par && !isBetter(wanted, best, par))) {
        studio.toast(best ? "The search found no better run than par." : "The search found no run.");
        return;
      }
      const run = new Recording(level, { label: `par: ${best.by}`, inputs: best.inputs });
      await storePlan(level, wanted, best.by, { ...best, frames: run.frames, gold: run.gold() });
      await addRun(run);
      studio.toast(`Stored as par: ${seconds(run.frames)} by ${best.by}, not proved`, "good");
      stored();
    } finally {
      leaving.removeEventListener("abort", stop);
      work = null;
      button.textContent = "Search longer";
    }
  };
  const button = actionButton("Search longer", () => (work ? work.abort() : solve().catch(studio.failed)), {
    class: "quiet small",
    title: "for a better run than par, by the planner and an agent; each search takes longer than the one before",
  });
  return div("", button, progress);
}
