/* Shows runs of one level while they are played: connects the watch socket, a player and the panels of decisions.
 *
 *     const watching = new Watching(root, level, { socket, failed, panels });
 *     watching.show([{ agent: "0", seed: 1, deterministic: false }, { planner: true }, { replay: 3 }]);
 *     watching.destroy();
 */

import { ApiError, whileCompiling } from "./api.js";
import { DecisionLog } from "./decision_panels.js";
import { decodePaths, draw, gridPicture } from "./overlays.js";
import { withInputs } from "./planner.js";
import { Player, RUN_COLOURS } from "./player.js";
import { emptyRun } from "./recording.js";

let latest = 0; // number of the latest request; answers to earlier ones are ignored

const REPORT_EVERY = 20; // frames between two reports of the displayed frame to the server
const REWARD_FRAMES = 40; // frames for which a reward is displayed
const HIDDEN_TERMS = new Set(["time", "shaping", "closest"]); // reward terms of almost every decision, which are not displayed
const HEAT = { cell: 12, columns: 88, rows: 50 };

export class Watching {
  /** root: element for the player.  panels: panels of decisions, or null.  changed: called when a run begins, ends or
   *  fails.
   *  differs: called with the message on the difference between two runs. */
  constructor(root, level, { socket, failed, panels = null, changed = () => {}, differs = (_) => {} }) {
    this.level = level;
    this.socket = socket;
    this.failed = failed;
    this.panels = panels;
    this.changed = changed;
    this.differs = differs;
    this.root = root;
    this.player = null;
    this.heat = null;
    this.requests = [];
    this.paths = new Map();
    this.number = 0;
    this.work = new AbortController(); // ends searches of the planner
  }

  show(requests) {
    this.player?.destroy();
    this.requests = requests;
    this.runs = requests.map(() => ({ index: null, log: null, over: null, error: null }));
    [this.reported, this.paths] = [0, new Map()];
    this.root.replaceChildren();
    this.player = new Player(this.root, { level: this.level });
    this.player.overlay = (frame) => this.overlay(frame);
    this.player.growing = true;
    this.player.state.textContent = "getting ready …";
    this.stopPolling?.();
    this.stopPolling = whileCompiling((text) => (this.player.state.textContent = text));
    this.number = ++latest;
    this.send(requests, this.number);
    this.changed();
  }

  /** Request the runs from the server, those of the planner after their search. */
  async send(requests, number) {
    this.work.abort();
    this.work = new AbortController();
    const { signal } = this.work;
    const ready = (request) =>
      withInputs(this.level, request, { signal }).catch((error) => {
        if (!signal.aborted) this.failed(error);
        return { label: "planner", inputs: "" };
      });
    const runs = await Promise.all(requests.map(ready));
    if (!signal.aborted) this.socket.send({ watch: { number, level: this.level.id, runs } });
  }

  destroy() {
    this.work.abort();
    this.stopPolling?.();
    this.player?.destroy();
  }

  get done() {
    return this.runs.every(({ over, error }) => over || error);
  }

  /** Handle a message of the socket; return false if it is of another kind. */
  receive(message) {
    if (!("watch" in message)) return false;
    if (message.watch !== this.number) return true; // answer to an earlier request
    if ("difference" in message) this.differs(message);
    else if ("error" in message) {
      for (const one of "run" in message ? [this.runs[message.run]] : this.runs) one.error = message.error;
      this.stopPolling();
      this.failed(new ApiError(message.error, 400));
      this.settle();
    } else if ("start" in message) this.begin(message);
    else this.extend(message);
    return true;
  }

  begin({ run, label, start, facts, layout }) {
    this.stopPolling();
    const one = this.runs[run];
    one.index = this.player.runs.length;
    one.log = layout ? new DecisionLog(layout) : null;
    one.facts = facts;
    const name = this.requests[run].seed > 0 ? `${label} · ${this.requests[run].seed}` : label;
    this.player.add(emptyRun(name, RUN_COLOURS[run % RUN_COLOURS.length], start));
    if (run === 0) this.player.follow(one.index); // also if another run was ready earlier
    if (this.player.runs.length === 1) this.player.play();
  }

  extend({ run, parts, over }) {
    const one = this.runs[run];
    for (const { decision, paths } of parts) if (decision) one.log.add(decision, paths);
    if (over) {
      one.over = over;
      if (parts.length) parts[parts.length - 1].outcome = over; // may be a time-out, which run parts do not know
    }
    this.player.extend(one.index, parts);
    if (one.log && this.followed === one) this.panels?.updateCharts();
    if (over) this.settle();
  }

  settle() {
    this.player.growing = !this.done;
    this.player.runs.forEach((_, i) => this.player.showEnd(i));
    this.changed();
  }

  /** The run that the player follows, or null. */
  get followed() {
    return this.runs.find(({ index }) => index !== null && index === this.player.main) ?? null;
  }

  /** Return the drawing functions for a frame; also report the frame to the server and to the panels. */
  overlay(frame) {
    if (Math.abs(frame - this.reported) >= REPORT_EVERY) {
      this.reported = frame;
      this.socket.send({ at: frame });
    }
    const one = this.followed;
    if (this.panels && this.panels.log !== (one?.log ?? null)) this.panels.set(one?.log ?? null);
    this.panels?.seek(frame);
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
    if (!decision || !this.panels) return;
    const at = this.player.runs[one.index].recording.points[decision.f];
    if (this.panels.chosen.has("paths")) {
      const paths = one.log.pathsAt(frame);
      if (paths && !this.paths.has(paths.text)) this.paths.set(paths.text, decodePaths(paths.text));
      if (paths) draw.paths(pen, at, this.paths.get(paths.text));
    }
    for (const name of ["surroundings", "foresight"]) {
      if (this.panels.chosen.has(name) && name in decision.s) draw[name](pen, at, decision.s, one.log.layout, decision);
    }
  }

  over(pen, one, frame, decision) {
    if (!decision || !this.panels) return;
    const { recording } = this.player.runs[one.index];
    if (this.panels.chosen.has("hazards") && "hazards" in decision.s) {
      draw.hazards(pen, recording.points[decision.f], decision.s, one.log.layout);
    }
    for (let i = decision.index; i >= 0; i--) {
      const { r } = one.log.decisions[i];
      const end = one.log.decisions[i + 1]?.f ?? recording.frames;
      if (frame - end > REWARD_FRAMES) break;
      if (frame >= end) this.drawRewards(pen, recording.points[end], r, (frame - end) / REWARD_FRAMES);
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
