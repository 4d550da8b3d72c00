/* Panels for the agent's decision at the displayed frame: action probabilities, value, entropy, rewards,
 * observations. */

import { Chart } from "./chart.js";
import { checkBox, div, element, factList, researchPanel, table, tableRow } from "./elements.js";
import { OVERLAYS, showPicture } from "./overlays.js";

const ACTIONS = [
  ["·", "nothing"],
  ["←", "left"],
  ["→", "right"],
  ["↑", "jump"],
  ["↖", "jump and left"],
  ["↗", "jump and right"],
];
const PICTURES = { player_frame: "What is around it", global_view: "The whole level" };

/** panels: elements to place on the page.  ``set`` selects the decisions of a run, ``seek`` shows those of a frame. */
export class DecisionPanels {
  /** seek: called with the frame under the pointer.  changed: called when the choice of overlays changes. */
  constructor({ seek, changed }) {
    this.chosen = new Set(["foresight"]);
    this.changed = changed;
    this.bars = ACTIONS.map(([sign, name]) => {
      const [fill, share] = [element("i"), element("span", { class: "share" })];
      const row = element(
        "div",
        { class: "action", title: name },
        element("kbd", { text: sign, "aria-label": name }),
        div("meter", fill),
        share,
      );
      return { row, fill, share };
    });
    this.note = element("p", { class: "small muted", hidden: true });
    const [value, entropy, sum] = [1, 2, 3].map(() => element("span", { text: "–" }));
    this.figures = { value, entropy, sum };
    const chart = (label) => element("canvas", { class: "chart small", role: "img", "aria-label": label });
    const canvases = { value: chart("Value over time"), entropy: chart("Entropy over time") };
    this.charts = Object.fromEntries(
      Object.entries(canvases).map(([name, canvas]) => [name, new Chart(canvas, { pick: seek, axis: false })]),
    );
    this.terms = element("tbody");
    this.policy = element(
      "section",
      { class: "panel policy" },
      element("h2", { text: "Next action" }),
      div("actions", this.bars.map(({ row }) => row)),
      this.note,
    );
    this.boxes = div("overlays");
    /** @type {{key: string, canvas: HTMLCanvasElement, figure: HTMLElement}[]} */
    this.shown = []; // pictures
    this.policy.append(this.boxes);
    this.pictures = div("pictures");
    this.numbers = element("details", { ontoggle: () => this.showNumbers() }, element("summary", { text: "Numbers" }));
    this.table = div("wide numbers");
    this.numbers.append(this.table);
    this.research = researchPanel(
      "For researchers",
      factList(["value", value]),
      canvases.value,
      factList(["entropy, nats", entropy]),
      canvases.entropy,
      element("h3", { text: "Rewards" }),
      table(["term", "now", "so far"], { class: "terms" }, this.terms),
      factList(["rewards so far", sum]),
      element("h3", { text: "Observations" }),
      this.pictures,
      this.numbers,
    );
    this.all = [this.policy, this.research];
    this.set(null);
  }

  destroy() {
    for (const chart of Object.values(this.charts)) chart.destroy();
  }

  /** Show the decisions of another run; null: hide the panels. */
  set(log) {
    this.log = log;
    for (const one of this.all) one.hidden = !log;
    if (!log) return;
    const { layout } = log;
    this.boxes.replaceChildren(
      ...OVERLAYS.filter(({ key }) => key === null || key in layout).map(({ name, title }) =>
        checkBox(this.chosen.has(name), (wanted) => this.choose(name, wanted), {}, title),
      ),
    );
    this.shown = Object.keys(layout)
      .filter((key) => key in PICTURES)
      .map((key) => {
        const canvas = element("canvas", { role: "img", "aria-label": PICTURES[key] });
        return {
          key,
          canvas,
          figure: element("figure", {}, canvas, element("figcaption", { class: "small muted", text: PICTURES[key] })),
        };
      });
    this.pictures.replaceChildren(...this.shown.map(({ figure }) => figure));
    this.updateCharts();
  }

  choose(name, wanted) {
    if (wanted) this.chosen.add(name);
    else this.chosen.delete(name);
    this.changed();
  }

  updateCharts() {
    const { decisions } = this.log;
    const x = decisions.map(({ f }) => f);
    this.charts.value.show({ lines: [{ x, y: decisions.map(({ v }) => v) }] });
    this.charts.entropy.show({ lines: [{ x, y: decisions.map(({ h }) => h) }], range: [0, 1] });
  }

  seek(frame) {
    if (!this.log) return;
    const decision = this.log.at(frame);
    for (const chart of Object.values(this.charts)) chart.seek(frame);
    if (!decision || decision === this.decision) return;
    this.decision = decision;
    this.bars.forEach(({ row, fill, share }, action) => {
      fill.style.width = `${100 * decision.p[action]}%`;
      share.textContent = percent(decision.p[action]);
      row.classList.toggle("chosen", action === decision.a);
    });
    const plan = Number.isInteger(decision.ahead) ? planText(decision) : "";
    this.note.textContent = decision.note ? `subtask: ${decision.note}` : plan;
    this.note.hidden = !this.note.textContent;
    this.figures.value.textContent = decision.v.toFixed(3);
    this.figures.entropy.textContent = decision.h.toFixed(3);
    this.showRewards(decision);
    for (const { key, canvas } of this.shown) showPicture(canvas, decision.s[key], key, this.log.layout[key].shape);
    this.showNumbers();
  }

  showRewards(decision) {
    const sums = this.log.sums(decision);
    this.terms.replaceChildren(
      ...Object.entries(sums).map(([name, sum]) => {
        const now = decision.r[name] ?? 0;
        const colour = now > 0.0005 ? "good" : now < -0.0005 ? "bad" : "muted";
        return tableRow(name, element("td", { class: colour, text: signed(now) }), signed(sum));
      }),
    );
    this.figures.sum.textContent = signed(Object.values(sums).reduce((a, b) => a + b, 0));
  }

  showNumbers() {
    if (!this.numbers.open || !this.decision) return;
    const { layout } = this.log;
    const { s } = this.decision;
    const rows = Object.entries(layout).filter(
      ([key, { picture, components }]) => !picture && components.length && s[key].length === components.length,
    );
    this.table.replaceChildren(
      element(
        "table",
        {},
        element(
          "tbody",
          {},
          rows.flatMap(([key, { components }]) => [
            tableRow(element("th", { colspan: 2, text: key.replaceAll("_", " ") })),
            ...components.map((name, i) =>
              tableRow(name.replaceAll("_", " "), Number(s[key][i].toFixed(3))),
            ),
          ]),
        ),
      ),
    );
  }
}

export class DecisionLog {
  constructor(layout) {
    this.layout = layout;
    this.decisions = [];
    this.paths = []; // [{f, lengths}], lengths of the paths to the objective from a frame on
    this.running = []; // cumulative rewards after each decision, by term
  }

  add(decision, paths) {
    const sums = { ...this.running[this.running.length - 1] };
    for (const [name, reward] of Object.entries(decision.r)) sums[name] = (sums[name] ?? 0) + reward;
    this.running.push(sums);
    decision.index = this.decisions.length;
    this.decisions.push(decision);
    if (paths) this.paths.push({ f: decision.f, lengths: paths });
  }

  /** Return the last decision made up to a frame. */
  at(frame) {
    return this.decisions.findLast(({ f }) => f <= frame) ?? null;
  }

  /** Return the path lengths at a frame: {f, lengths}. */
  pathsAt(frame) {
    return this.paths.findLast(({ f }) => f <= frame) ?? null;
  }

  /** Return the cumulative rewards after a decision, by term. */
  sums(decision) {
    return this.running[decision.index];
  }
}

/** Describe thinking and plan of a decision in live play. */
function planText({ thinks, ahead }) {
  return `${thinks ? "thinking" : "not thinking"}; ${ahead} ${ahead === 1 ? "decision" : "decisions"} planned`;
}

function percent(share) {
  return share > 0.995 && share < 1 ? "99+ %" : `${Math.round(100 * share)} %`;
}

function signed(value) {
  const text = Math.abs(value) < 0.0005 ? "0" : value.toFixed(3);
  return value > 0.0005 ? `+${text}` : text.replace("-", "−");
}
