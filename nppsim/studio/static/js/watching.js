/* Shows runs of one level while they are played: a player, and the panels of the agents' decisions.
 *
 *     const watching = new Watching(root, level, { failed, panels });
 *     watching.show([{ agent, seed: 1, deterministic: false }, { planner: "time" }, { path: "replays/3" }]);
 *     watching.destroy();
 */

import { play } from "./agents.js";
import { whileCompiling } from "./api.js";
import { findRun } from "./library.js";
import { DecisionLog } from "./decision_panels.js";
import { element } from "./elements.js";
import { draw, gridPicture, pathPicture } from "./overlays.js";
import { PLANNERS, levelOf, planned } from "./planner.js";
import { Player, RUN_COLOURS } from "./player.js";
import { bytes, concatenated } from "./arrays.js";
import { Recording } from "./recording.js";
import { addBest } from "./store.js";

const REWARD_FRAMES = 40; // frames for which a reward is displayed
const HIDDEN_TERMS = new Set(["time", "shaping", "closest"]); // terms of almost every decision, not displayed
const HEAT = { cell: 12, columns: 88, rows: 50 };

export class Watching {
  /** @type {Player} */
  player; // of the runs that are shown
  stopPolling = () => {};

  /**
   * @param {HTMLElement} root - for the player
   * @param {any} level - level document
   * @param {{failed: (error: Error) => void, panels: import("./decision_panels.js").DecisionPanels,
   *   changed: () => void, ended?: (runs: any[]) => void}} on - changed: called when a run begins, ends or fails.
   *   ended: called with the runs that have not failed when all have ended
   */
  constructor(root, level, { failed, panels, changed, ended = () => {} }) {
    this.level = level;
    this.failed = failed;
    this.panels = panels;
    this.changed = changed;
    this.ended = ended;
    this.root = root;
    this.why = element("p", { class: "why small", role: "status" }); // why the followed run is lost
    this.heat = null;
    this.paths = new Map();
    this.runs = [];
    this.work = new AbortController(); // ends the work for earlier runs
  }

  /** Show runs: {agent: card, seed, deterministic, live: clock of live play or ""}, {planner: objective} or {path: of a
   *  run}. */
  show(requests) {
    this.work.abort();
    this.work = new AbortController();
    this.player?.destroy();
    this.runs = requests.map((request) => ({ request, index: null, run: null, log: null, over: null, error: null }));
    this.paths = new Map();
    this.player = new Player(this.root, { level: this.level });
    this.player.overlay = (frame) => this.overlay(frame);
    this.root.append(this.why);
    this.player.growing = true;
    this.player.state.textContent = "getting ready …";
    this.stopPolling();
    this.stopPolling = whileCompiling((text) => (this.player.state.textContent = text));
    const { signal } = this.work;
    for (const one of this.runs) this.play(one, signal).catch((error) => signal.aborted || this.fail(one, error));
    this.changed();
  }

  destroy() {
    this.work.abort();
    this.stopPolling();
    this.player?.destroy();
  }

  /** Stop at a frame. */
  seek(frame) {
    this.player.pause();
    this.player.seek(Math.round(frame));
  }

  get done() {
    return this.runs.every(({ over, error }) => over || error);
  }

  async play(one, signal) {
    const { agent, ...request } = one.request;
    if (!agent) {
      const { label, inputs } = await this.inputsOf(one.request, signal);
      signal.throwIfAborted();
      this.begin(one, label);
      this.extend(one, bytes(inputs));
      this.end(one, one.run.outcome);
      return;
    }
    for await (const message of play(agent, { ...request, levels: [levelOf(this.level)] }, signal)) {
      const { layout, decisions, ending, why } = message;
      if (layout) this.begin(one, `${agent.name} · ${request.seed}`, layout);
      for (const decision of decisions ?? []) one.log.add(decision, decision.paths);
      if (decisions) this.extend(one, concatenated(Uint8Array, ...decisions.map(({ inputs }) => inputs)));
      if (!ending) continue;
      [one.place, one.why] = [ending.slice(3, 5), why];
      this.end(one, ending[1]);
    }
  }

  /** Return {label, inputs} of a run of the planner, or of one that is stored. */
  async inputsOf(request, signal) {
    const { planner, path } = request;
    if (path) return findRun(path);
    const plan = await planned(this.level, planner, { signal });
    if (!plan) throw new Error("the planner found no run of this level");
    return { label: plan.by ?? PLANNERS[planner], inputs: plan.inputs }; // an agent may have found it
  }

  begin(one, label, layout = null) {
    this.stopPolling();
    one.index = this.player.runs.length;
    one.log = layout && new DecisionLog(layout);
    const number = this.runs.indexOf(one);
    one.run = new Recording(this.level, { label, colour: RUN_COLOURS[number % RUN_COLOURS.length] });
    this.player.add(one.run);
    if (one.request.live) this.player.runs[one.index].decisions = one.log.decisions;
    if (number === 0) this.player.follow(one.index); // also if another run was ready earlier
    if (this.player.runs.length === 1) this.player.play();
  }

  extend(one, inputs) {
    one.run.play(inputs);
    this.player.update(one.index);
    if (one.log && this.followed === one) this.panels.updateCharts();
  }

  /** End a run; the outcome may be a time-out, which the simulator does not know. */
  end(one, outcome) {
    one.over = outcome;
    one.run.outcome = outcome;
    this.score(one);
    this.settle();
  }

  fail(one, error) {
    one.error = error.message;
    this.stopPolling();
    this.failed(error);
    this.settle();
  }

  settle() {
    this.player.growing = !this.done;
    this.player.runs.forEach((_, i) => this.player.showEnd(i));
    if (this.done) this.ended(this.runs.filter(({ over }) => over));
    this.changed();
  }

  /** The run that the player follows, or null. */
  get followed() {
    return this.runs.find(({ index }) => index !== null && index === this.player.main) ?? null;
  }

  /** Add an agent's run that has won to the best runs. */
  score({ request: { agent }, run, over }) {
    if (!agent || over !== "won") return;
    const { frames } = run;
    addBest(this.level.id, { kind: "agent", name: agent.name, frames, gold: run.gold() }).catch(this.failed);
  }

  /** Return the drawing functions for a frame; also report the frame to the panels. */
  overlay(frame) {
    const one = this.followed;
    if (this.panels.log !== (one?.log ?? null)) this.panels.set(one?.log ?? null);
    this.panels.seek(frame);
    const why = one?.why ?? "";
    if (this.why.textContent !== why) this.why.textContent = why;
    const decision = one?.log?.at(frame);
    return {
      under: (pen) => this.under(pen, one, frame, decision),
      over: (pen) => this.over(pen, one, frame, decision),
    };
  }

  under(pen, one, frame, decision) {
    if (this.heat) {
      pen.context.imageSmoothingEnabled = true;
      pen.context.drawImage(this.heat, 0, 0, HEAT.columns * HEAT.cell, HEAT.rows * HEAT.cell);
    }
    if (!decision) return;
    const at = one.run.points[decision.f];
    if (this.panels.chosen.has("paths")) {
      const paths = one.log.pathsAt(frame);
      if (paths && !this.paths.has(paths)) this.paths.set(paths, pathPicture(paths.lengths));
      if (paths) draw.paths(pen, at, this.paths.get(paths));
    }
    for (const name of ["surroundings", "foresight"]) {
      if (this.panels.chosen.has(name) && name in decision.s) draw[name](pen, at, decision.s, one.log.layout, decision);
    }
  }

  over(pen, one, frame, decision) {
    if (one?.why) pen.ring(one.place, 20, 3, pen.colours.amber);
    if (!decision) return;
    const { points, frames } = one.run;
    if (this.panels.chosen.has("hazards") && "hazards" in decision.s) {
      draw.hazards(pen, points[decision.f], decision.s, one.log.layout);
    }
    for (let i = decision.index; i >= 0; i--) {
      const { r } = one.log.decisions[i];
      const end = one.log.decisions[i + 1]?.f ?? frames;
      if (frame - end > REWARD_FRAMES) break;
      if (frame >= end) this.drawRewards(pen, points[end], r, (frame - end) / REWARD_FRAMES);
    }
  }

  /** Draw rewards as texts that rise from the ninja's position.  share: elapsed part of the display time. */
  drawRewards(pen, [x, y], rewards, share) {
    const c = pen.context;
    const size = Math.max(9, 13 / this.player.scene.view.scale);
    c.font = `700 ${size}px system-ui, sans-serif`;
    c.textAlign = "center";
    c.lineWidth = size / 4;
    Object.entries(rewards)
      .filter(([name]) => !HIDDEN_TERMS.has(name))
      .forEach(([name, reward], i) => {
        c.globalAlpha = 1 - share * share;
        const text = `${name} ${reward > 0 ? "+" : "−"}${Math.abs(Number(reward.toFixed(3)))}`;
        const top = y - 16 - (1.2 * i + 1.6 * share) * size;
        c.strokeStyle = pen.colours.open;
        c.strokeText(text, x, top);
        c.fillStyle = reward > 0 ? pen.colours.green : pen.colours.red;
        c.fillText(text, x, top);
      });
    c.globalAlpha = 1;
  }

  /** Show a heat map of positions, [[x, y], ...], px; null: none. */
  showHeat(places) {
    this.heat = places && heatPicture(places);
    this.player?.seek(this.player.frame);
  }
}

/** Return a heat map of positions, from transparent over amber to red. */
export function heatPicture(places) {
  const counts = new Float32Array(HEAT.columns * HEAT.rows);
  for (const [x, y] of places) {
    const [i, j] = [x / HEAT.cell - 0.5, y / HEAT.cell - 0.5];
    for (let a = Math.floor(i) - 1; a <= Math.floor(i) + 2; a++) {
      for (let b = Math.floor(j) - 1; b <= Math.floor(j) + 2; b++) {
        if (a < 0 || b < 0 || a >= HEAT.columns || b >= HEAT.rows) continue;
        counts[b * HEAT.columns + a] += Math.exp(-((a - i) ** 2 + (b - j) ** 2) / 1.1);
      }
    }
  }
  const most = Math.max(...counts, 1e-6);
  return gridPicture(HEAT.columns, HEAT.rows, (column, row) => {
    const share = Math.sqrt(counts[row * HEAT.columns + column] / most);
    if (share < 0.04) return null;
    return [235 - 25 * share, Math.round(150 - 130 * share), Math.round(40 - 10 * share), Math.round(60 + 180 * share)];
  });
}
