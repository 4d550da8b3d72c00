/* The gallery of levels with search, filters and sorting.  Pictures are drawn when they become visible. */

import { get } from "./api.js";
import { allLevels } from "./library.js";
import { putTargets, removeLevels, storedPars } from "./store.js";
import { seconds } from "./clock.js";
import { SUPPORT, actionButton, confirmed, div, element, linkButton, selectOf, takesKeys } from "./elements.js";
import { loadLevel } from "./engine.js";
import { onThemeChange } from "./pen.js";
import { planned } from "./planner.js";
import { Player } from "./player.js";
import { Recording } from "./recording.js";
import { bytes } from "./arrays.js";
import { isReached, targetText } from "./targets.js";
import { Scene } from "./scene.js";

const PAGE = 120; // cards created at a time
const ORDERS = {
  "as in the folder": () => 0,
  "par time": (a, b) => (a.par ?? Infinity) - (b.par ?? Infinity),
  size: (a, b) => a.extent[0] * a.extent[1] - b.extent[0] * b.extent[1],
  variety: (a, b) => kindsOf(b) - kindsOf(a) || b.extent[0] * b.extent[1] - a.extent[0] * a.extent[1],
  name: (a, b) => a.name.localeCompare(b.name, undefined, { numeric: true }),
};
const SIZES = {
  any: () => true,
  small: (area) => area < 60,
  medium: (area) => area >= 60 && area < 300,
  large: (area) => area >= 300,
};
const PARS = {
  any: () => true,
  "under 5 s": (par) => par !== null && par < 300,
  "5 to 15 s": (par) => par >= 300 && par < 900,
  "over 15 s": (par) => par >= 900,
  unknown: (par) => par === null,
};
const SUCCESS = {
  any: () => true,
  "never finished": (runs) => runs && !runs.won,
  "not always finished": (runs) => runs && runs.won < runs.all,
  "always finished": (runs) => runs && runs.won === runs.all,
  "not played": (runs) => !runs,
};

const UNFILTERED = { search: "", category: "", support: "any", entity: "", size: "any", par: "any", success: "any" };
const chosen = { ...UNFILTERED, shown: "levels", order: "", top: 0 }; // survives a change of the view

/** Return a level's category; levels opened or created in the page have none. */
function categoryOf({ category }) {
  return category ?? "opened here";
}

/** Return the number of kinds of entities in a level. */
function kindsOf({ entities }) {
  return Object.keys(entities).length;
}

/** The view; see app.js.  #/levels/NAME shows one category. */
export async function show(root, studio, category) {
  const [{ levels, own, problems }, { run: film }, pars] = await Promise.all([allLevels(), get("film"), storedPars()]);
  if (category) Object.assign(chosen, { ...UNFILTERED, order: "as in the folder", category, top: 0 });
  for (const card of levels)
    if (pars.has(card.id)) card.par = Math.min(card.par ?? Infinity, pars.get(card.id) ?? Infinity);
  if (!levels.some((card) => categoryOf(card) === chosen.category)) chosen.category = "";
  if (category && !chosen.category) studio.toast(`There is no category “${category}” here; all are shown.`, "bad");
  if (!levels.length) {
    root.append(
      div(
        "notice",
        element("h1", { text: "No levels yet" }),
        element(
          "p",
          {},
          "Drop level or campaign files here, or ",
          element("a", { href: "#/edit", text: "draw a level" }),
          " and save it in the folder.",
        ),
      ),
    );
    return undefined;
  }
  chosen.order ||= film ? "variety" : "as in the folder"; // the film's level is one of those shipped with nppsim
  const level = film && (await loadLevel(film.level));
  const shown = film && { run: new Recording(level, { label: film.label, inputs: bytes(film.inputs) }), level };
  const gallery = new Gallery(root, studio, { levels, own, problems, runs: await success(studio) }, shown);
  return () => gallery.destroy();
}

/** Count the replays of each level whose ending is known: id -> {all, won}.  With the replays of an evaluation, it is
 *  the agent's success rate. */
async function success(studio) {
  const runs = new Map();
  try {
    for (const { level, success: won } of (await get("replays")).replays) {
      if (won === null) continue;
      const one = runs.get(level) ?? { all: 0, won: 0 };
      runs.set(level, { all: one.all + 1, won: one.won + (won ? 1 : 0) });
    }
  } catch (error) {
    studio.failed(error); // unreadable replays do not prevent the display of levels
  }
  return runs;
}

class Gallery {
  made = 0; // number of cards that have been created
  /** @type {(card: any) => HTMLElement} */
  make; // creates a card

  /** own: ids of levels that are stored in the browser.  film: {run, level} that is played above the levels,
   *  or null. */
  constructor(root, studio, { levels, own, problems, runs }, film) {
    this.studio = studio;
    this.levels = levels;
    this.own = own;
    this.runs = runs;
    this.shown = [];
    this.painter = new Painter();
    this.cards = element("ul", { class: "cards" });
    this.more = div("more"); // more cards are created when it becomes visible
    this.count = element("p", { class: "muted small", role: "status" });
    this.targets = element("p", { class: "small", hidden: true });
    this.observer = new IntersectionObserver((entries) => entries.some((one) => one.isIntersecting) && this.add());
    const page = div(
      "page",
      this.bar(),
      problems.map((text) => element("p", { class: "warn small", text })),
      this.count,
      this.targets,
      this.cards,
      this.more,
    );
    root.append(page);
    this.film = film && new GalleryFilm(page, film);
    this.observer.observe(this.more);
    this.countTargets().catch(studio.failed);
    this.keys = (event) => this.key(event);
    document.addEventListener("keydown", this.keys);
    this.filter();
    const top = chosen.top;
    while (this.more.getBoundingClientRect().top + scrollY < top + innerHeight && this.add());
    scrollTo(0, top);
    this.scrolled = () => (chosen.top = scrollY);
    addEventListener("scroll", this.scrolled, { passive: true });
  }

  destroy() {
    removeEventListener("scroll", this.scrolled);
    document.removeEventListener("keydown", this.keys);
    this.observer.disconnect();
    this.painter.destroy();
    this.film?.destroy();
  }

  /** Count the levels whose best runs reach their targets. */
  async countTargets() {
    const wanted = this.levels.filter(({ target }) => target);
    if (!wanted.length) return;
    const reached = await Promise.all(wanted.map(({ id, target }) => isReached(id, target)));
    const remove = () => putTargets([]).then(() => this.studio.go(location.hash), this.studio.failed);
    this.targets.hidden = false;
    this.targets.replaceChildren(
      `${reached.filter(Boolean).length} of ${wanted.length} at or below target `,
      actionButton("Remove the targets", remove, { class: "quiet small" }),
    );
  }

  bar() {
    const categories = [...new Set(this.levels.map(categoryOf))];
    const kinds = [...new Set(this.levels.flatMap(({ entities }) => Object.keys(entities)))].sort();
    const file = element("input", {
      type: "file",
      multiple: true,
      hidden: true,
      onchange: () => this.studio.openFiles(file.files),
    });
    this.search = element("input", {
      type: "search",
      placeholder: "Search levels  ( / )",
      "aria-label": "Search levels",
      value: chosen.search,
      oninput: () => this.choose("search", this.search.value),
      onkeydown: (event) => event.key === "Enter" && this.cards.querySelector("a")?.click(),
    });
    const named = (choices, first, prefix = "") =>
      Object.keys(choices).map((name, i) => [name, i ? prefix + name : first]);
    return div(
      "bar",
      this.search,
      this.chooser("category", "Category", [["", "all categories"], ...categories.map((one) => [one, one])]),
      this.levels.some(({ episode }) => episode)
        ? this.chooser("shown", "Show", [["levels", "levels"], ["episodes", "episodes"]])
        : null,
      this.chooser("support", "Support", Object.entries({ any: "exact or not", ...SUPPORT })),
      this.chooser("entity", "With", [["", "any entities"], ...kinds.map((kind) => [kind, `with ${kind}`])]),
      this.chooser("size", "Size", named(SIZES, "any size")),
      this.chooser("par", "Par time", named(PARS, "any par time", "par ")),
      this.runs.size ? this.chooser("success", "Success", named(SUCCESS, "any success")) : null,
      this.chooser("order", "Order", named(ORDERS, "as in the folder", "by ")),
      element("span", { class: "spacer" }),
      this.own.length
        ? actionButton(
            this.own.length === 1 ? "Forget the opened level" : `Forget the ${this.own.length} opened levels`,
            () => this.forget().catch(this.studio.failed),
            { class: "quiet", title: "remove opened and linked levels from this browser; stored runs stay" },
          )
        : null,
      file,
      actionButton("Open files …", () => file.click(), {
        title: "levels, packs, replays, attract files; or drop them on the page",
      }),
    );
  }

  async forget() {
    const text = "Levels that were opened, linked or drawn are removed from this browser; stored runs and drafts stay.";
    if (!(await confirmed("Forget these levels?", text, "Forget them"))) return;
    await removeLevels(this.own);
    this.studio.go("#/levels");
  }

  chooser(name, label, choices) {
    return selectOf(label, choices, (value) => this.choose(name, value), chosen[name]);
  }

  choose(name, value) {
    chosen[name] = value;
    this.filter();
  }

  filter() {
    const words = chosen.search.toLowerCase().split(/\s+/).filter(Boolean);
    this.shown = this.levels.filter((card) => {
      const text = `${card.name} ${card.code} ${card.category ?? ""} ${card.id.slice(0, 12)}`.toLowerCase();
      return (
        words.every((word) => text.includes(word)) &&
        (!chosen.category || categoryOf(card) === chosen.category) &&
        (chosen.support === "any" || card.support.grade === chosen.support) &&
        (!chosen.entity || card.entities[chosen.entity]) &&
        SIZES[chosen.size](card.extent[0] * card.extent[1]) &&
        PARS[chosen.par](card.par) &&
        SUCCESS[this.runs.size ? chosen.success : "any"](this.runs.get(card.id))
      );
    });
    this.shown.sort(ORDERS[chosen.order]);
    const [first, all] = [firstOfEpisodes(this.shown), firstOfEpisodes(this.levels)];
    const ofEpisodes = chosen.shown === "episodes" && all.length > 0;
    if (ofEpisodes) this.shown = first;
    this.make = ofEpisodes ? (card) => this.episodeCard(card) : (card) => this.card(card);
    this.count.textContent = this.shown.length
      ? `${this.shown.length} of ${ofEpisodes ? `${all.length} episodes` : `${this.levels.length} levels`}`
      : "No level matches. Choose “any” in a filter, or clear the search.";
    if (this.film) this.film.root.hidden = this.shown.length < this.levels.length;
    this.cards.replaceChildren();
    this.made = 0;
    this.add();
  }

  /** Create the next cards; return false if there are none. */
  add() {
    const next = this.shown.slice(this.made, this.made + PAGE);
    this.made += next.length;
    this.cards.append(...next.map(this.make));
    return next.length > 0;
  }

  card(card) {
    const picture = element("canvas", { width: 1, height: 1, "aria-hidden": "true" });
    this.painter.watch(picture, card.id);
    const category = categoryOf(card);
    const par = element("span", { class: "par" });
    const showPar = () => (par.textContent = card.par === null ? "" : `par ${seconds(card.par)} · `);
    showPar();
    if (card.par === null) this.painter.findPar(picture, card, showPar);
    const text = [
      card.target && `target ${targetText(card.target)}`,
      card.code,
      `${card.extent[0]} × ${card.extent[1]}`,
      card.code || card.name.startsWith(`${category}/`) ? null : category,
    ]
      .filter(Boolean)
      .join(" · ");
    const runs = this.runs.get(card.id);
    const { grade, notes } = card.support;
    return element(
      "li",
      {},
      element(
        "a",
        { class: "card", href: `#/play/${card.id}`, "data-level": card.id },
        picture,
        grade === "exact"
          ? null
          : element("span", { class: `chip badge ${grade}`, text: SUPPORT[grade], title: notes.join("; ") }),
        element("h3", { text: card.name }),
        element(
          "p",
          {},
          par,
          text,
          runs &&
            element("span", {
              class: runs.won === runs.all ? "good" : runs.won ? "warn" : "bad",
              text: ` · ${runs.won} of ${runs.all} finish`,
            }),
        ),
      ),
    );
  }

  /** Return the card of a level's episode. */
  episodeCard({ episode }) {
    const levels = this.levels.filter((card) => card.episode === episode).sort((a, b) => a.code.localeCompare(b.code));
    const picture = element("canvas", { width: 1, height: 1, "aria-hidden": "true" });
    this.painter.watch(picture, levels[0].id);
    const names = levels.map(({ name }) => name).join(" · ");
    return element(
      "li",
      {},
      element(
        "a",
        { class: "card", href: `#/episode/${encodeURIComponent(episode)}` },
        picture,
        element("h3", { text: episode }),
        element("p", { text: names, title: names }),
      ),
    );
  }

  /** Handle keys: / focuses the search, arrows move between cards. */
  key(event) {
    if (event.defaultPrevented || takesKeys(event.target) || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/") {
      event.preventDefault();
      this.search.focus();
      return;
    }
    const cards = [...this.cards.querySelectorAll("a")];
    const at = cards.indexOf(document.activeElement);
    const columns = Math.max(1, cards.findIndex((card) => card.offsetTop !== cards[0].offsetTop));
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key];
    if (!step || !cards.length) return;
    event.preventDefault();
    cards[Math.min(Math.max(at < 0 ? 0 : at + step, 0), cards.length - 1)].focus();
  }
}

/* A run that plays at the head of the page while it is visible. */
class GalleryFilm {
  constructor(page, { run, level }) {
    const place = element("div");
    this.root = element(
      "section",
      { class: "film" },
      place,
      div(
        "",
        element("h1", { text: "Levels with the exact physics of N++" }),
        element("p", {
          text:
            `Here ${run.label} plays one of the levels below. ` +
            "It learned from recorded runs, then from its own episodes.",
        }),
        div(
          "bar",
          element("a", { class: "button primary", href: `#/play/${level.id}`, text: "Beat it" }),
          linkButton("Watch how it decides", `#/watch/${level.id}`),
          linkButton("Draw a level", "#/edit"),
        ),
        element("p", {
          class: "muted small",
          text: "Drop level files, replays or attract files anywhere on the page to open them.",
        }),
      ),
    );
    page.prepend(this.root); // the player measures its place
    this.player = new Player(place, { level, runs: [run] });
    this.player.repeats = true;
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.observer = new IntersectionObserver(([{ isIntersecting }]) =>
      isIntersecting && !still ? this.player.play() : this.player.pause(),
    );
    this.observer.observe(place);
  }

  destroy() {
    this.observer.disconnect();
    this.player.destroy();
  }
}

/** Return one level of each episode. */
function firstOfEpisodes(levels) {
  const found = new Map(); // id of an episode -> its first level in the list
  for (const card of levels) if (card.episode && !found.has(card.episode)) found.set(card.episode, card);
  return [...found.values()];
}

/* Draws the pictures of visible cards one after another with a single scene, then lets the planner find their par
 * times. */
class Painter {
  constructor() {
    this.canvas = element("canvas", { class: "painter" });
    document.body.append(this.canvas);
    this.scene = new Scene(this.canvas);
    this.documents = new Map();
    this.waiting = new Set();
    this.ids = new WeakMap();
    this.ending = new AbortController(); // ends the search
    this.pars = new Map(); // visible picture -> [card, found], of levels whose par time is unknown
    this.observer = new IntersectionObserver((entries) => this.see(entries), { rootMargin: "200px" });
    this.endTheme = onThemeChange(() => {
      for (const picture of document.querySelectorAll(".cards canvas[data-drawn]"))
        this.draw(picture, this.documents.get(this.ids.get(picture)));
    });
  }

  destroy() {
    this.ended = true;
    this.ending.abort();
    this.observer.disconnect();
    this.endTheme();
    this.scene.destroy();
    this.canvas.remove();
  }

  watch(picture, id) {
    this.ids.set(picture, id);
    this.observer.observe(picture);
  }

  /** Find the par time of a level while its picture is visible; then call found(). */
  findPar(picture, card, found) {
    this.pars.set(picture, [card, found]);
  }

  see(entries) {
    for (const { target, isIntersecting } of entries) {
      target.dataset.visible = isIntersecting;
      if (target.dataset.drawn) continue;
      if (isIntersecting) this.waiting.add(target);
      else this.waiting.delete(target);
    }
    this.work();
  }

  async work() {
    if (this.working) return;
    this.working = true;
    while (this.waiting.size && !this.ended) {
      const [picture] = this.waiting;
      this.waiting.delete(picture);
      const id = this.ids.get(picture);
      try {
        if (!this.documents.has(id)) this.documents.set(id, await loadLevel(id));
      } catch (error) {
        picture.title = error.message;
        continue; // its card stays without a picture
      }
      if (!this.ended) this.draw(picture, this.documents.get(id));
    }
    this.working = false;
    this.search();
  }

  async search() {
    if (this.searching) return;
    this.searching = true;
    for (let next = this.unknown(); next && !this.ended; next = this.unknown()) {
      const [picture, [card, found]] = next;
      this.pars.delete(picture);
      try {
        card.par = (await planned(this.documents.get(card.id), "time", { signal: this.ending.signal }))?.frames ?? null;
      } catch {
        break; // the level can be played nevertheless
      }
      found();
    }
    this.searching = false;
  }

  unknown() {
    return [...this.pars].find(([picture]) => picture.isConnected && picture.dataset.visible === "true");
  }

  draw(picture, level) {
    picture.dataset.drawn = "true";
    this.scene.resize(null);
    this.scene.setLevel({ ...level, left_out: level.left_out.map(({ x, y }) => ({ x, y })) }); // too small for names
    [picture.width, picture.height] = [this.canvas.width, this.canvas.height];
    picture.getContext("2d").drawImage(this.canvas, 0, 0);
  }
}
