/* Panel "Where it dies": counts how episodes on a level or a category end, and draws a heat map of the deaths. */

import { element, table } from "./elements.js";
import { Scene } from "./scene.js";
import { heatPicture } from "./watching.js";

let latest = 0; // number of the latest request; answers to earlier ones are ignored

const EPISODES = [64, 256, 1024];
const SHOWN = 12; // levels in the table of a category, lowest success rate first

export class Deaths {
  /** heat: called with the positions of the deaths on this level, or null.  name: function that returns a level's
   *  name. */
  constructor({ socket, level, agents, heat, name }) {
    this.socket = socket;
    this.level = level;
    this.heat = heat;
    this.name = name;
    this.endings = [];
    this.levels = [];
    this.total = 0;
    this.agent = element(
      "select",
      { "aria-label": "Agent" },
      agents.map(({ id, name: text }) => element("option", { value: id, text })),
    );
    this.where = element(
      "select",
      { "aria-label": "Where" },
      element("option", { value: "level", text: "this level" }),
      level.category ? element("option", { value: "category", text: `all of ${level.category}` }) : null,
    );
    this.episodes = element(
      "select",
      { "aria-label": "Episodes" },
      EPISODES.map((count) => element("option", { value: count, text: `${count} episodes` })),
    );
    this.button = element("button", {
      type: "button",
      text: "Start",
      title: "let the agent play these episodes and mark where they end",
      onclick: () => (this.counting ? this.stop() : this.count()),
    });
    this.progress = element("i");
    this.meter = element("div", { class: "meter", hidden: true }, this.progress);
    this.status = element("p", { class: "small", "aria-live": "polite" });
    this.more = element("div");
    this.panel = element(
      "section",
      { class: "panel deaths" },
      element("h2", { text: "Where it dies" }),
      element("div", { class: "bar" }, this.agent, this.where, this.episodes, this.button),
      this.meter,
      this.status,
      this.more,
    );
  }

  destroy() {
    this.scene?.destroy();
  }

  count() {
    [this.endings, this.levels, this.counting] = [[], [], true];
    this.button.textContent = "Stop";
    this.meter.hidden = false;
    this.progress.style.width = "0";
    this.status.textContent = "";
    this.more.replaceChildren();
    this.heat(null);
    const whole = this.where.value === "category";
    this.number = ++latest;
    this.socket.send({
      deaths: {
        number: this.number,
        agent: this.agent.value,
        level: whole ? null : this.level.id,
        category: whole ? this.level.category : null,
        episodes: Number(this.episodes.value),
      },
    });
  }

  stop() {
    this.socket.send({ stop: "deaths" });
    this.end();
  }

  end() {
    this.counting = false;
    this.button.textContent = "Start";
    this.meter.hidden = true;
  }

  /** Handle a message of the socket; return false if it is of another kind. */
  receive(message) {
    if (!("deaths" in message)) return false;
    if (message.deaths !== this.number || !this.counting) return true; // answer to an earlier request
    if ("levels" in message) [this.levels, this.total] = [message.levels, message.episodes];
    if ("endings" in message) this.addEndings(message.endings);
    if ("error" in message) this.status.textContent = message.error;
    if ("error" in message || "counted" in message) this.end();
    return true;
  }

  addEndings(endings) {
    this.endings.push(...endings);
    this.progress.style.width = `${(100 * this.endings.length) / this.total}%`;
    const count = (outcome) => this.endings.filter((one) => one[1] === outcome).length;
    const share = Math.round((100 * count("won")) / this.endings.length);
    this.status.textContent =
      `${count("won")} of ${this.endings.length} won (${share} %), ${count("died")} died, ` +
      `${count("timeout")} ran out of time`;
    const places = this.endings.filter((one) => one[1] === "died").map(([, , , x, y]) => [x, y]);
    if (this.levels.length === 1) this.heat(places);
    else this.showCategory(places);
  }

  showCategory(places) {
    if (!this.more.firstChild) {
      const canvas = element("canvas", {
        class: "stagemap",
        role: "img",
        "aria-label": "Deaths on the stage, of all levels together",
      });
      this.table = element("tbody");
      this.more.replaceChildren(canvas, table(["level", "won", "died"], {}, this.table));
      this.scene?.destroy();
      this.scene = new Scene(canvas);
      this.scene.setLevel({
        ...this.level,
        tiles: this.level.tiles.map((row) => row.map(() => 0)),
        entities: [],
        left_out: [],
        start: { ...this.level.start, c: {} },
      });
      this.scene.fit("stage");
    }
    const picture = heatPicture(places);
    this.scene.draw({ ninja: null, under: (pen) => pen.context.drawImage(picture, 0, 0, 1056, 600) });
    const rows = this.levels
      .map((id, level) => {
        const own = this.endings.filter((one) => one[0] === level);
        const of = (outcome) => own.filter((one) => one[1] === outcome).length;
        return { id, won: of("won"), died: of("died"), all: own.length };
      })
      .filter(({ all }) => all);
    rows.sort((a, b) => a.won / a.all - b.won / b.all || b.died - a.died);
    this.table.replaceChildren(
      ...rows
        .slice(0, SHOWN)
        .map(({ id, won, died, all }) =>
          element(
            "tr",
            {},
            element("td", {}, element("a", { href: `#/watch/${id}`, text: this.name(id) })),
            element("td", { text: `${won}/${all}` }),
            element("td", { text: died }),
          ),
        ),
    );
  }
}
