/* Panel "Improve": searches in a worker for better inputs of the selected frames (input_search.js). */

import { seconds } from "./clock.js";
import { actionButton, div, element, panel, selectOf } from "./elements.js";
import { GOALS } from "./input_search.js";
import { levelOf } from "./planner.js";
import { messagesOf } from "./work.js";

const FORMATS = {
  exit: (value) => `exit in ${-value} frames`,
  switch: (value) => `switch in ${-value} frames`,
  gold: (value) => `${value} gold`,
  speed: (value) => `${value.toFixed(3)} px/frame`,
  point: (value) => `${(-value).toFixed(2)} px away`,
};

export class SearchPanel {
  /** inputs, range: functions that return the inputs and the selected frames [from, to].  gain: called with better
   *  inputs, their label, and whether they are the first of this search. */
  constructor({ level, inputs, range, gain, failed }) {
    this.level = level;
    this.inputs = inputs;
    this.range = range;
    this.gain = gain;
    this.failed = failed;
    this.point = level.spawn;
    this.work = null; // ends the search
    this.goals = selectOf("Goal", Object.entries(GOALS));
    this.button = actionButton("Search", () => (this.work ? this.work.abort() : this.start().catch(this.failed)), {
      title: "try shifts, toggled keys and random changes of the selected frames",
    });
    this.status = element("p", { class: "small", role: "status" });
    this.gains = element("ol", { class: "small" });
    this.panel = panel("Improve the selected frames", div("bar", this.goals, this.button), this.status, this.gains);
  }

  destroy() {
    this.work?.abort();
  }

  get goal() {
    return this.goals.value;
  }

  /** Set the point of the goal "point" to a position in the level, px. */
  setPoint(point) {
    this.point = point;
    if (this.goal === "point") this.status.textContent = `to x ${point[0].toFixed(0)}, y ${point[1].toFixed(0)}`;
  }

  async start() {
    const [from, to] = this.range();
    const inputs = this.inputs();
    if (to >= inputs.length) throw new Error("select frames of the run first: drag in the ruler");
    const { goal, point } = this;
    const switches = this.level.entities.flatMap(({ kind }, i) => (kind === "exit switch" ? [i] : []));
    this.button.textContent = "Stop";
    this.gains.replaceChildren();
    this.work = new AbortController();
    const { signal } = this.work;
    const request = { level: levelOf(this.level), inputs, from, to, goal, point, switches };
    let found = 0;
    try {
      for await (const { tried, best, gain } of messagesOf("input search", request, signal)) {
        if (gain) {
          const label = FORMATS[goal](gain.value);
          this.gains.prepend(element("li", { text: `${label}, after ${seconds(gain.frame)}` }));
          this.gain(gain.inputs, label, found++ === 0);
        }
        const value = best === -Infinity ? "not reached yet" : FORMATS[goal](best);
        this.status.textContent = `${tried.toLocaleString("en")} changes tried · ${value}`;
      }
    } catch (error) {
      if (!signal.aborted) throw error;
    } finally {
      this.work = null;
      this.button.textContent = "Search";
    }
  }
}
