/* View "Training": progress and learning curves of an experiment, and its newest weights at play; refreshed
 * automatically. */

import { get } from "./api.js";
import { Chart } from "./chart.js";
import { div, dot, element, factList, panel } from "./elements.js";
import { loadLevel } from "./engine.js";
import { DecisionPanels } from "./decision_panels.js";
import { RUN_COLOURS } from "./player.js";
import { Watching } from "./watching.js";

const REFRESH_MS = 3000;
const NEXT_MS = 1500; // delay between two episodes
const STYLES = [1, 0.55]; // opacity of the first line of a chart and of the others

export async function show(root, studio) {
  const [experiment, { levels }] = await Promise.all([get("experiment"), get("levels")]);
  if (experiment === null) {
    root.replaceChildren(
      div(
        "notice",
        element("h1", { text: "No experiment is displayed" }),
        element("p", {
          text: "Start the studio with --run and the folder of an experiment, or train with --visualize-training.",
        }),
      ),
    );
    return undefined;
  }
  const view = new RunView(root, studio, levels);
  view.show(experiment);
  return () => view.destroy();
}

class RunView {
  constructor(root, studio, levels) {
    this.studio = studio;
    this.levels = levels;
    this.charts = new Map();
    this.episodes = 0;
    this.head = div("bar");
    this.trainings = div("panels trainings");
    this.curves = div("curves");
    this.log = element("pre", { class: "log" });
    this.stage = element("div");
    this.playing = element("p", { class: "small muted" });
    this.panels = new DecisionPanels({ seek: (frame) => this.watching?.seek(frame), changed: () => {} });
    this.live = element(
      "section",
      { class: "panel live", hidden: true },
      element("h2", { text: "The newest weights at play" }),
      this.playing,
      this.stage,
    );
    root.replaceChildren(
      div(
        "page training",
        this.head,
        div(
          "columns",
          div("", this.trainings, this.curves, panel("Log", this.log)),
          div("", this.live, ...this.panels.all),
        ),
      ),
    );
    this.back = () => studio.go(location.hash);
    document.addEventListener("studioback", this.back);
    this.refresher = setTimeout(() => this.refresh(), REFRESH_MS);
  }

  destroy() {
    clearTimeout(this.refresher);
    clearTimeout(this.next);
    this.ended = true;
    document.removeEventListener("studioback", this.back);
    this.watching?.destroy();
    this.panels.destroy();
    for (const chart of this.charts.values()) chart.destroy();
  }

  async refresh() {
    try {
      const experiment = await get("experiment");
      if (!this.ended) this.show(experiment);
    } catch (error) {
      this.studio.failed(error);
    }
    if (!this.ended) this.refresher = setTimeout(() => this.refresh(), REFRESH_MS);
  }

  show(experiment) {
    this.experiment = experiment;
    const age = experiment.written ? Date.now() / 1000 - experiment.written : null;
    const state = experiment.finished ? "finished" : age === null ? "begins" : `written ${ago(age)}`;
    this.head.replaceChildren(
      element("h1", { text: experiment.name }),
      element("span", {
        class: `chip ${!experiment.finished && age !== null && age < 120 ? "good" : "muted"}`,
        text: state,
      }),
    );
    this.trainings.replaceChildren(
      ...(experiment.runs.length
        ? experiment.runs.map((run, i) => this.training(run, i))
        : [panel(null, element("p", { class: "muted", text: "No training has begun yet." }))]),
    );
    this.drawCurves(experiment.runs);
    this.writeLog(experiment.log);
    if (!this.watching) this.play();
  }

  training(run, index) {
    const fill = element("i");
    const share = run.finished ? 1 : run.total ? Math.min(run.decisions / run.total, 1) : 0;
    fill.style.width = `${100 * share}%`;
    const [done, total] = [run.decisions, run.total].map((count) => count?.toLocaleString("en"));
    const { checkpoint } = run;
    const newest = checkpoint ? `${checkpoint.name}, ${ago(Date.now() / 1000 - checkpoint.written)}` : "none yet";
    return panel(
      null,
      div(
        "bar",
        element("span", { class: "chip" }, dot(colourOf(index)), titleOf(run)),
        element("span", { class: "spacer" }),
        element("span", { class: "small muted", text: run.finished ? "finished" : "" }),
      ),
      div("meter", fill),
      factList(
        ["decisions", total ? `${done} of ${total}` : done],
        run.stage && ["stage", run.stage],
        ["newest weights", newest],
      ),
    );
  }

  drawCurves(runs) {
    const titles = new Map(); // title -> lines of all trainings
    runs.forEach((run, index) => {
      for (const { title, unit, levels, lines } of run.charts) {
        const known = titles.get(title) ?? { unit, levels, lines: [] };
        titles.set(title, known);
        lines.forEach((line, k) => {
          const colour = faded(colourOf(index), STYLES[Math.min(k, STYLES.length - 1)]);
          if (line.mean) known.lines.push({ x: line.steps, y: line.values, colour, faint: true });
          known.lines.push({ x: line.steps, y: line.mean ?? line.values, colour, steps: levels !== null });
        });
        if (runs.length === 1 && !levels)
          known.marks = run.stages.slice(1).map(({ begin, name }) => ({ x: begin, text: name }));
      }
    });
    for (const [title, shown] of titles) {
      if (!this.charts.has(title)) {
        const canvas = element("canvas", { class: "chart", role: "img", "aria-label": title });
        const unit = shown.unit ? `, ${shown.unit}` : "";
        this.curves.append(panel(`${title}${unit}`, canvas));
        this.charts.set(title, new Chart(canvas));
      }
      this.charts.get(title).show({ ...shown, levels: shown.levels ?? undefined });
    }
  }

  writeLog(lines) {
    const atEnd = this.log.scrollTop + this.log.clientHeight >= this.log.scrollHeight - 8;
    this.log.textContent = lines.join("\n") || "–";
    if (atEnd) this.log.scrollTop = this.log.scrollHeight;
  }

  /** Let the newest weights of the next training play a level. */
  async play() {
    const ready = this.experiment.runs.filter(({ checkpoint }) => checkpoint);
    if (!ready.length || !this.levels.length) return;
    const run = ready[this.episodes % ready.length];
    // spread over the gallery
    const { id } = this.levels[Math.floor(((this.episodes * 0.618) % 1) * this.levels.length)];
    this.episodes += 1;
    const [level, { agents }] = await Promise.all([loadLevel(id), get("agents")]);
    const agent = agents.find((one) => one.id === run.agent);
    if (this.ended || !agent) return;
    this.watching?.destroy();
    this.live.hidden = false;
    this.playing.textContent = `${titleOf(run)}: ${run.checkpoint.name}, on ${level.name}`;
    this.watching = new Watching(this.stage, level, {
      failed: this.studio.failed,
      panels: this.panels,
      changed: () => this.settled(),
    });
    this.watching.show([{ agent, seed: this.episodes, deterministic: false }]);
  }

  /** When an episode has been shown to its end, the next begins; not while the user looks at it. */
  settled() {
    clearTimeout(this.next);
    if (!this.watching?.done) return;
    const { player } = this.watching;
    this.next = setTimeout(() => {
      if (player.frame >= player.last) this.play().catch(this.studio.failed);
      else this.settled();
    }, NEXT_MS);
  }
}

function titleOf({ label, seed }) {
  return seed === null ? label : `${label}, seed ${seed}`;
}

function colourOf(index) {
  return RUN_COLOURS[index % RUN_COLOURS.length];
}

function faded(colour, opacity) {
  return opacity === 1 ? colour : `color-mix(in srgb, ${colour} ${100 * opacity}%, transparent)`;
}

function ago(age) {
  if (age < 90) return `${Math.max(Math.round(age), 0)} s ago`;
  if (age < 5400) return `${Math.round(age / 60)} min ago`;
  return age < 130_000 ? `${Math.round(age / 3600)} h ago` : `${Math.round(age / 86_400)} days ago`;
}
