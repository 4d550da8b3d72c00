/* Other runs to play against: the player's best run, stored runs and replays of the level, the planner, agents. */

import { continued } from "./agents.js";
import { get, whileCompiling } from "./api.js";
import { seconds } from "./clock.js";
import { actionButton, checkBox, div, dot, element } from "./elements.js";
import { loadRun } from "./engine.js";
import { allRuns } from "./library.js";
import { PLANNERS, levelOf, planned } from "./planner.js";
import { RUN_COLOURS } from "./player.js";
import { Recording } from "./recording.js";
import { storedPlan } from "./store.js";

const bests = new Map(); // level id -> looks of the best run in this tab
const MOST = 12; // stored runs and replays in the list

/** Draw a run that has won beside later ones, if it is the fastest of this tab. */
export function drawIfBest({ level: { id }, looks }) {
  if (!bests.has(id) || looks.length < bests.get(id).length) bests.set(id, [...looks]);
}

export class RecordedRuns {
  /** on: {changed(), takeOver(inputs), preview(recording or null, frame)}. */
  constructor(root, level, studio, on) {
    this.root = root;
    this.level = level;
    this.studio = studio;
    this.on = on;
    this.sources = []; // [{key, label, fetch, recording, shown}]
    this.wantsBest = true;
    this.slider = element("div");
  }

  /** Return the looks of the shown runs at a frame. */
  at(frame) {
    const shown = this.sources.filter(({ recording, shown: on }) => on && recording);
    const others = shown.map(({ recording, colour, label }) => ({ look: recording.look(frame), colour, label }));
    const best = this.wantsBest ? bests.get(this.level.id) : null;
    if (best) others.push({ look: best[Math.min(frame, best.length - 1)], colour: RUN_COLOURS[0], label: "best" });
    return others;
  }

  async load() {
    const ofLevel = (await allRuns()).filter(({ level }) => level === this.level.id).slice(0, MOST);
    const recorded = ofLevel.map(({ path, label, frames }) => {
      return { key: path, label, frames, fetch: () => loadRun(path, this.level) };
    });
    const played = this.sources.filter(({ request }) => request?.agent);
    this.setSources([await this.parSource(), ...played, ...recorded]);
  }

  /** Return the source of the stored par, whoever found it, or of the planner, which searches when it is shown. */
  async parSource() {
    const plan = await storedPlan(this.level.id, "time");
    const made = this.playedSource("the planner", { planner: true });
    const source = this.sources.find(({ key }) => key === made.key) ?? made;
    if (!plan) return source;
    if (plan.by && plan.by !== PLANNERS.time) source.label = plan.by;
    if (source.recording && source.recording.frames !== plan.frames) {
      source.recording = source.fetching = null;
      if (source.shown) await this.fetch(source);
    }
    source.frames = plan.frames;
    return source;
  }

  /** Add the studio's agents to the list.  Only on demand, since loading them takes seconds and disturbs play. */
  async loadAgents() {
    const { agents, why_none: whyNone } = await get("agents");
    if (!agents.length) this.studio.toast(whyNone);
    const found = agents.map((agent) => this.playedSource(agent.name, { agent }));
    this.setSources([...this.sources.filter(({ request }) => !request?.agent), ...found]);
  }

  /** Return a source whose run is played when it is first shown.  request: as in a watch message. */
  playedSource(label, request) {
    return { key: JSON.stringify(request), label, request, frames: null, fetch: () => playedRun(this.level, request) };
  }

  setSources(sources) {
    const before = new Map(this.sources.map((source) => [source.key, source]));
    this.sources = sources.map((source) => before.get(source.key) ?? source);
    const free = RUN_COLOURS.slice(1);
    this.sources.forEach((source, i) => {
      source.colour ??= free[i % free.length];
    });
    this.fill();
  }

  fill() {
    const rows = this.sources.map((source) => this.row(source));
    if (bests.has(this.level.id)) {
      const change = (checked) => {
        this.wantsBest = checked;
        this.on.changed();
      };
      const time = element("span", { class: "muted", text: seconds(bests.get(this.level.id).length - 1) });
      const mark = dot(RUN_COLOURS[0], { class: "dot" });
      rows.unshift(checkBox(this.wantsBest, change, { class: "recorded-run" }, mark, "your best here", time));
    }
    const agents = actionButton("Agents …", () => this.loadAgents().catch(this.studio.failed), {
      class: "quiet small",
    });
    this.root.replaceChildren(...rows, this.slider, this.sources.some(({ request }) => request?.agent) ? "" : agents);
  }

  row(source) {
    return div(
      "recorded-run",
      checkBox(
        source.shown ?? false,
        (checked) => this.toggle(source, checked),
        {},
        dot(source.colour, { class: "dot" }),
        element("span", { class: "name", text: source.label, title: source.label }),
        element("span", {
          class: "muted",
          text: source.frames !== null ? seconds(source.frames) : source.fetching ? (source.note ?? "…") : "",
        }),
      ),
      actionButton("practise", () => this.choose(source), {
        class: "quiet small",
        title: `go on from a frame of this run: ${source.label}`,
      }),
    );
  }

  async toggle(source, shown) {
    source.shown = shown;
    if (shown) await this.fetch(source);
    this.on.changed();
  }

  async fetch(source) {
    const stopPolling = whileCompiling((words) => {
      source.note = words;
      this.fill();
    });
    try {
      source.fetching ??= source.fetch();
      if (!source.recording) this.fill(); // shows that it is loading
      source.recording = await source.fetching;
      source.frames = source.recording.frames;
    } catch (error) {
      [source.fetching, source.shown] = [null, false];
      this.studio.failed(error);
    } finally {
      stopPolling();
    }
    if (!this.slider.hasChildNodes()) this.fill();
    return source.recording;
  }

  /** Let the player choose a frame of a run from which to continue. */
  async choose(source) {
    const recording = await this.fetch(source);
    if (!recording) return;
    const frame = element("input", {
      type: "range",
      min: 0,
      max: recording.frames - 1,
      value: 0,
      "aria-label": "Frame to go on from",
      oninput: () => this.on.preview(recording, Number(frame.value)),
    });
    const go = () => {
      this.endPreview();
      this.on.takeOver(recording.inputs.slice(0, Number(frame.value)));
    };
    this.slider.replaceChildren(
      div(
        "bar",
        frame,
        actionButton("Go on from here", go, { class: "primary" }),
        actionButton("Cancel", () => this.endPreview()),
      ),
    );
    this.on.preview(recording, 0);
    frame.focus();
  }

  endPreview() {
    this.slider?.replaceChildren();
    this.on.preview(null, 0);
  }
}

/** Let the planner or an agent play a level; resolves to the Recording. */
async function playedRun(level, request) {
  if (request.planner) {
    const plan = await planned(level);
    if (!plan) throw new Error("the planner found no run of this level");
    return new Recording(level, { label: "planner", inputs: plan.inputs });
  }
  const inputs = await continued(request.agent, levelOf(level), new Uint8Array(), new AbortController().signal);
  return new Recording(level, { label: request.agent.name, inputs });
}
