/* Panel "Where it dies": counts how episodes on a level or a category end, and draws a heat map of the places where
 * they are lost: of deaths, and of the last progress before the time is up. */

import { play } from "./agents.js";
import { get } from "./api.js";
import { actionButton, div, element, selectOf, table, tableRow } from "./elements.js";
import { levelOf } from "./planner.js";
import { Scene } from "./scene.js";
import { heatPicture } from "./watching.js";

const EPISODES = [64, 256, 1024];
const MOST_LEVELS = 250; // of a category
const REPORT_MS = 200;
const SHOWN = 12; // levels in the table of a category, lowest success rate first

export class Deaths {
  /** @type {Scene} */
  scene; // of the heat map of a category

  /** levels: cards of all levels.  heat: called with the places on this level, or null.  name: function that returns a
   *  level's name. */
  constructor({ level, levels, agents, heat, name }) {
    this.level = level;
    this.allLevels = levels;
    this.agents = agents;
    this.work = new AbortController(); // ends the episodes
    this.heat = heat;
    this.name = name;
    this.endings = [];
    this.levels = [];
    this.total = 0;
    this.agent = selectOf("Agent", agents.map(({ id, name: text }) => [id, text]));
    const places = [
      ["level", "this level"],
      ["category", `all of ${level.category}`],
    ];
    this.where = selectOf("Where", level.category ? places : places.slice(0, 1));
    this.episodes = selectOf("Episodes", EPISODES.map((count) => [count, `${count} episodes`]));
    this.button = actionButton("Start", () => (this.counting ? this.stop() : this.count()), {
      title: "let the agent play these episodes and mark where they end",
    });
    this.progress = element("i");
    this.meter = element("div", { class: "meter", hidden: true }, this.progress);
    this.status = element("p", { class: "small", "aria-live": "polite" });
    this.more = element("div");
    this.table = element("tbody");
    this.panel = element(
      "section",
      { class: "panel deaths" },
      element("h2", { text: "Where it dies" }),
      div("bar", this.agent, this.where, this.episodes, this.button),
      this.meter,
      this.status,
      this.more,
    );
  }

  destroy() {
    this.work.abort();
    this.scene?.destroy();
  }

  async count() {
    [this.endings, this.counting] = [[], true];
    this.button.textContent = "Stop";
    this.meter.hidden = false;
    this.progress.style.width = "0";
    const began = performance.now();
    const waited = () => {
      const passed = Math.round((performance.now() - began) / 1000);
      this.status.textContent = `0 of ${this.total || this.episodes.value} episodes have ended, ${passed} s`;
    };
    waited();
    const timer = setInterval(() => (this.endings.length ? null : waited()), 1000);
    this.more.replaceChildren();
    this.heat(null);
    this.work = new AbortController();
    const { signal } = this.work;
    try {
      await this.play(signal);
    } catch (error) {
      if (!signal.aborted) this.status.textContent = error.message;
    } finally {
      clearInterval(timer);
    }
    if (!signal.aborted) this.end();
  }

  async play(signal) {
    const { category } = this.level;
    const same = this.allLevels.filter((card) => card.category === category);
    const chosen = same.filter((_, i) => i % Math.ceil(same.length / MOST_LEVELS) === 0);
    this.levels = this.where.value === "category" ? chosen.map(({ id }) => id) : [this.level.id];
    const each = Math.ceil(Number(this.episodes.value) / this.levels.length);
    this.total = each * this.levels.length;
    const levels = await Promise.all(
      this.levels.map(async (id) => levelOf(id === this.level.id ? this.level : await get(`levels/${id}`))),
    );
    const agent = this.agents.find(({ id }) => id === this.agent.value);
    /** @type {any[][]} */
    let endings = [];
    let reported = 0;
    for await (const { ending } of play(agent, { levels, episodes: each, endingsOnly: true }, signal)) {
      if (ending) endings.push(ending);
      const now = performance.now();
      if (now - reported < REPORT_MS && this.endings.length + endings.length < this.total) continue;
      if (endings.length) this.addEndings(endings);
      [endings, reported] = [[], now];
    }
  }

  stop() {
    this.work.abort();
    this.end();
  }

  end() {
    this.counting = false;
    this.button.textContent = "Start";
    this.meter.hidden = true;
  }

  addEndings(endings) {
    this.endings.push(...endings);
    this.progress.style.width = `${(100 * this.endings.length) / this.total}%`;
    const { won, died, timeout, progress } = summary(this.endings);
    const share = Math.round((100 * won) / this.endings.length);
    this.status.textContent =
      `${won} of ${this.endings.length} won (${share} %), ${died} died, ${timeout} ran out of time` +
      (progress ? ` · lost after ${progress} of the path on average` : "") +
      (this.endings.length < this.total ? ` · ${this.total - this.endings.length} to go` : "");
    const places = this.endings.filter((one) => one[1] !== "won").map(([, , , x, y]) => [x, y]);
    if (this.levels.length === 1) this.heat(places);
    else this.showCategory(places);
  }

  showCategory(places) {
    if (!this.more.firstChild) {
      const canvas = element("canvas", {
        class: "stagemap",
        role: "img",
        "aria-label": "Places where episodes are lost, of all levels together",
      });
      this.more.replaceChildren(canvas, table(["level", "won", "died", "time is up", "path"], {}, this.table));
      this.scene?.destroy();
      this.scene = new Scene(canvas);
      this.scene.setLevel({
        ...this.level,
        tiles: this.level.tiles.map((row) => row.map(() => 0)),
        entities: [],
        left_out: [],
        start: { ...this.level.start, looks: [] },
      });
      this.scene.fit("stage");
    }
    const picture = heatPicture(places);
    this.scene.draw({ ninja: null, under: (pen) => pen.context.drawImage(picture, 0, 0, 1056, 600) });
    const rows = this.levels
      .map((id, level) => ({ id, ...summary(this.endings.filter((one) => one[0] === level)) }))
      .filter(({ all }) => all);
    rows.sort((a, b) => a.won / a.all - b.won / b.all || b.died - a.died);
    this.table.replaceChildren(
      ...rows
        .slice(0, SHOWN)
        .map(({ id, won, died, timeout, all, progress }) => {
          const link = element("a", { href: `#/watch/${id}`, text: this.name(id) });
          return tableRow(link, `${won}/${all}`, died, timeout, progress);
        }),
    );
  }
}

/** Count endings by outcome.  progress: mean covered share of the path in lost episodes, as text. */
function summary(endings) {
  const of = (outcome) => endings.filter((one) => one[1] === outcome).length;
  const lost = endings.filter((one) => one[1] !== "won");
  const mean = lost.reduce((sum, one) => sum + one[5], 0) / lost.length;
  const progress = lost.length ? `${Math.round(100 * mean)} %` : "";
  return { won: of("won"), died: of("died"), timeout: of("timeout"), all: endings.length, progress };
}
