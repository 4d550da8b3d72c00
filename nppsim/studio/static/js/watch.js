/* View "Watch": runs of agents, the planner and recordings on one level, with the agents' decisions and
 * observations. */

import { get, isSite } from "./api.js";
import { Deaths } from "./deaths.js";
import { difference } from "./differences.js";
import { actionButton, div, dot, element, factList, selectOf, table, tableRow } from "./elements.js";
import { loadLevel } from "./engine.js";
import { allLevels, allRuns } from "./library.js";
import { PLANNERS } from "./planner.js";
import { DecisionPanels } from "./decision_panels.js";
import { RUN_COLOURS } from "./player.js";
import { Watching } from "./watching.js";

const MOST_RUNS = 6;
const MOST_OFFERED = 200; // recordings in the list of choices
const INITIAL_AGENTS = 3; // agents shown at first
const AGAIN_MS = 1500; // delay between the end of all runs and the next try

// Values of "How it chooses": [value, text, title, request].
const CHOICES = [
  ["draws", "varies from try to try", "samples its actions", { deterministic: false, live: "" }],
  ["greedy", "the same on every try", "takes the most probable action", { deterministic: true, live: "" }],
];
const LIVE_CHOICES = [
  ["counted", "live", "thinks while the clock runs; computation has fixed prices", { live: "counted" }],
  ["measured", "live, measured", "thinks while the clock runs, on this machine", { live: "measured" }],
];

/** The view; see app.js.  id: of a level; default: the first one.  clock: of live play by the first agents, or none. */
export async function show(root, studio, id, clock = "") {
  const { levels } = await allLevels();
  if (!id) {
    if (!levels.length) throw new Error("There are no levels here. Drop level files onto the page.");
    studio.go(`#/watch/${levels[0].id}`);
    return undefined;
  }
  const [level, agents, runs] = await Promise.all([loadLevel(id), get("agents"), allRuns()]);
  const recorded = runs.filter((run) => run.level === id);
  const view = new Watch(root, studio, { level, levels, clock, ...agents, recorded });
  return () => view.destroy();
}

class Watch {
  constructor(root, studio, { level, levels, clock, agents, why_none: whyNone, recorded }) {
    this.studio = studio;
    this.level = level;
    this.levels = levels;
    this.agents = agents;
    this.recorded = recorded;
    this.back = () => studio.go(location.hash);
    document.addEventListener("studioback", this.back);
    this.panels = new DecisionPanels({
      seek: (frame) => this.watching.seek(frame),
      changed: () => this.watching.player?.seek(this.watching.player.frame),
    });
    this.deaths = new Deaths({
      level,
      levels,
      agents,
      heat: (places) => this.watching.showHeat(places),
      name: (other) => levels.find((one) => one.id === other)?.name ?? other,
    });
    const stage = this.build(root, whyNone);
    this.watching = new Watching(stage, level, {
      failed: studio.failed,
      panels: this.panels,
      changed: () => this.settled(),
      ended: (runs) => this.compare(runs),
    });
    const request = (agent) => ({ agent, seed: 1, deterministic: false, live: clock });
    this.requests = agents.slice(0, INITIAL_AGENTS).map(request);
    if (!this.requests.length) this.requests = [{ planner: "time" }];
    this.begin();
  }

  destroy() {
    clearTimeout(this.timer);
    document.removeEventListener("studioback", this.back);
    this.watching.destroy();
    this.deaths.destroy();
    this.panels.destroy();
  }

  build(root, whyNone) {
    const stage = div("watching");
    this.list = element("ul", { class: "players" });
    this.adding = div("bar");
    this.again = element("input", { type: "checkbox", onchange: () => this.settled() });
    this.difference = element("section", { class: "panel", hidden: true });
    const here = this.levels.findIndex(({ id }) => id === this.level.id);
    const step = (by, text, label) => {
      const other = this.levels[(here + by + this.levels.length) % this.levels.length];
      return element("a", {
        class: "button icon",
        href: `#/watch/${other?.id ?? ""}`,
        "aria-label": label,
        title: label,
        text,
      });
    };
    const who = element(
      "section",
      { class: "panel who" },
      div(
        "bar",
        element("h2", { text: this.level.name }),
        step(-1, "‹", "the level before"),
        step(1, "›", "the next level"),
      ),
      whyNone && element("p", { class: "small warn", text: whyNone }),
      this.list,
      this.adding,
      div(
        "bar",
        actionButton("Again", () => this.nextTry(), { class: "primary", title: "with other random numbers" }),
        element("label", { class: "small" }, this.again, "repeat"),
        element("span", { class: "spacer" }),
        element("a", { class: "small", href: `#/play/${this.level.id}`, text: "play it" }),
      ),
    );
    const deaths = this.agents.length ? this.deaths.panel : null;
    root.replaceChildren(div("split", stage, div("panels", who, ...this.panels.all, this.difference, deaths)));
    return stage;
  }

  begin() {
    clearTimeout(this.timer);
    this.difference.hidden = true;
    this.watching.show(this.requests);
    this.listRuns();
  }

  nextTry() {
    this.requests = this.requests.map((request) =>
      "seed" in request ? { ...request, seed: request.seed + 1 } : request,
    );
    this.begin();
  }

  /** Schedule the next try if all runs are over; called when a run begins, ends or fails. */
  settled() {
    clearTimeout(this.timer);
    if (!this.again.checked || !this.watching.done) return;
    const { player } = this.watching;
    this.timer = setTimeout(
      () => (player.frame >= player.last && player === this.watching.player ? this.nextTry() : this.settled()),
      AGAIN_MS,
    );
  }

  listRuns() {
    this.list.replaceChildren(...this.requests.map((request, index) => this.row(request, index)));
    const choices = [
      ...this.agents.map((agent) => [agent.name, { agent, seed: 1, deterministic: false, live: "" }]),
      ...Object.entries(PLANNERS).map(([planner, name]) => [`the ${name}`, { planner }]),
      ...this.recorded.slice(0, MOST_OFFERED).map(({ label, path }) => [label, { path }]),
    ];
    const select = selectOf("Who else", choices.map(([text], i) => [i, text]));
    const add = () => {
      const request = { ...choices[Number(select.value)][1] };
      if ("seed" in request) request.seed += this.requests.filter(({ agent }) => agent === request.agent).length;
      this.requests = [...this.requests, request];
      this.begin();
    };
    this.adding.replaceChildren(select, actionButton("Add", add, { disabled: this.requests.length >= MOST_RUNS }));
  }

  row(request, index) {
    const mark = dot(RUN_COLOURS[index % RUN_COLOURS.length]);
    const change = (values) => {
      this.requests = this.requests.map((one, i) => (i === index ? { ...one, ...values } : one));
      this.begin();
    };
    const drop = actionButton(
      "×",
      () => {
        this.requests = this.requests.filter((_, i) => i !== index);
        this.begin();
      },
      { class: "quiet icon", "aria-label": "remove", title: "remove", disabled: this.requests.length < 2 },
    );
    const { agent } = request;
    const choices = isSite ? CHOICES : [...CHOICES, ...LIVE_CHOICES];
    const chosen = request.live || (request.deterministic ? "greedy" : "draws");
    const name =
      agent?.name ?? PLANNERS[request.planner] ?? this.recorded.find(({ path }) => path === request.path)?.label;
    const how =
      agent &&
      element(
        "select",
        {
          class: "small",
          "aria-label": "How it chooses",
          onchange: (event) => change(choices[event.target.selectedIndex][3]),
        },
        choices.map(([value, text, title]) =>
          element("option", { value, text, title, selected: value === chosen }),
        ),
      );
    const seed = agent && element("span", { class: "small muted", text: `try ${request.seed}` });
    const about =
      agent &&
      Object.entries(agent.facts)
        .map(([fact, words]) => `${fact}: ${words}`)
        .join("\n");
    return element(
      "li",
      {},
      element("div", { title: about }, mark, element("span", { class: "name", text: name ?? "?" }), drop),
      agent && div("", seed, how),
    );
  }

  /** Compare the first run with the others. */
  compare(runs) {
    const [first, ...others] = runs;
    this.difference.hidden = true;
    for (const other of others) {
      this.showDifference(first.run.label, other.run.label, difference(this.level, first.run.inputs, other.run.inputs));
    }
  }

  showDifference(first, other, { inputs_part: inputs, positions_part: positions, marks, total }) {
    const jump = (frame) =>
      frame === null ? "never" : actionButton(`frame ${frame}`, () => this.watching.seek(frame), { class: "quiet" });
    const lead = (frames) => (frames === null ? "–" : `${frames > 0 ? "+" : ""}${frames}`);
    const rows = marks.map(({ remaining_px: left, frame_a: frame, lead: ahead }) =>
      tableRow(`${Math.round(left)} px`, frame === null ? "–" : jump(frame), lead(ahead)),
    );
    const sections =
      marks.length &&
      element(
        "details",
        {},
        element("summary", { text: "Frames gained along the path" }),
        table(["left", first, "leads by"], {}, element("tbody", {}, rows)),
      );
    const parts = div(
      "",
      element("h3", { text: `${first} – ${other}` }),
      factList(
        ["inputs differ", jump(inputs)],
        ["positions differ", jump(positions)],
        total !== null && [
          "faster by",
          `${Math.abs(total)} frames: ${total > 0 ? first : total < 0 ? other : "neither"}`,
        ],
      ),
      sections || null,
    );
    if (this.difference.hidden) this.difference.replaceChildren(element("h2", { text: "Where they diverge" }));
    this.difference.hidden = false;
    this.difference.append(parts);
  }
}
