/* View "Runs": lists stored runs and replays, and shows one of them, with the other runs of its level. */

import { features, get } from "./api.js";
import { score, seconds } from "./clock.js";
import { actionButton, confirmed, div, element, linkButton, researchPanel, table } from "./elements.js";
import { loadLevel, loadRun } from "./engine.js";
import { exportDialog } from "./export_dialog.js";
import { allLevels, allRuns, findRun, saveFile } from "./library.js";
import { Player } from "./player.js";
import { Recording } from "./recording.js";
import { bytes } from "./arrays.js";
import { copyLink } from "./share.js";
import { exportAll, removeRun } from "./store.js";
import { demonstrate } from "./store_dialog.js";

const MOST_ROWS = 200; // rows in the list; the search finds the others
const MOST_OTHERS = 8; // other runs of the same level that are offered

/** The view; see app.js.  #/replays lists; #/replays/runs/3, #/replays/replays/7 and #/replays/opened show one
 *  run. */
export async function show(root, studio, kind, number) {
  if (!kind) return list(root, studio);
  const stored = kind === "opened" ? studio.opened : await findRun(`${kind}/${number}`);
  if (!stored) {
    studio.go("#/replays"); // after a reload, no replay is open
    return undefined;
  }
  return watch(root, studio, stored, `${kind}/${number}`);
}

// ---------------------------------------------------------------------------------------------------------------------
// One run

async function watch(root, studio, stored, path) {
  const level = await loadLevel(stored.level);
  const run = new Recording(level, { label: stored.label, inputs: bytes(stored.inputs) });
  const place = element("div");
  const others = div("bar others");
  root.append(
    div(
      "page",
      div(
        "bar heading",
        element("h1", { text: run.label || level.name }),
        element("span", { class: "muted", text: level.name }),
        element("span", { class: "spacer" }),
        path === "opened/undefined" ? null : linkButton("Edit its inputs", `#/inputs/${level.id}/${path}`),
        actionButton("Copy link", () => copyLink(studio, level, bytes(stored.inputs)).catch(studio.failed)),
        linkButton("Play this level", `#/play/${level.id}`),
      ),
      place,
      others,
    ),
  );
  const player = new Player(place, { level, runs: [run] });
  place.tabIndex = -1;
  place.focus({ preventScroll: true }); // the player's keys need the focus
  const offers = (await allRuns()).filter((one) => one.level === level.id && one.path !== path).slice(0, MOST_OTHERS);
  if (offers.length) others.append(element("span", { class: "muted", text: "Compare with:" }));
  for (const one of offers) {
    const button = actionButton(`${one.label}, ${seconds(one.frames)}`, async () => {
      button.disabled = true;
      try {
        player.add(await loadRun(one.path, level));
        place.focus({ preventScroll: true }); // the space bar would scroll the page
      } catch (error) {
        button.disabled = false;
        studio.failed(error);
      }
    });
    others.append(button);
  }
  return () => player.destroy();
}

// ---------------------------------------------------------------------------------------------------------------------
// The list

async function list(root, studio) {
  const [first, { levels }, { problems }, { demonstrations: writes }] = await Promise.all([
    allRuns(),
    allLevels(),
    get("replays"),
    features(),
  ]);
  let runs = first;
  const names = new Map(levels.map(({ id, name }) => [id, name]));
  const folder = writes ? element("div") : null;
  if (writes) showFolder(folder, await get("demonstrations"));
  const search = element("input", {
    type: "search",
    placeholder: "Search runs",
    "aria-label": "Search runs",
    oninput: () => fill(),
  });
  const count = element("span", { class: "muted small", role: "status" });
  const rows = element("tbody");
  const fill = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const text = ({ label, level }) => `${label} ${names.get(level) ?? ""}`.toLowerCase();
    const found = runs.filter((run) => words.every((word) => text(run).includes(word)));
    count.textContent =
      found.length > MOST_ROWS
        ? `the first ${MOST_ROWS} of ${found.length} runs`
        : `${found.length} ${found.length === 1 ? "run" : "runs"}`;
    results.forget();
    rows.replaceChildren(
      ...found.slice(0, MOST_ROWS).map((run) => {
        const line = row(run, names, studio, folder);
        if (run.kind === "replays") results.watch(line, run);
        return line;
      }),
    );
  };
  const results = new Results();
  const saveAll = actionButton(
    "Save everything as a file",
    () => exportAll().then((data) => saveFile(data, "nppsim-runs.json"), studio.failed),
    {
      title:
        "stored runs, best runs, opened levels and drafts; drop the file on the page of another browser to add them",
    },
  );
  root.append(
    div(
      "page",
      listOf(problems),
      div("bar above", search, count, element("span", { class: "spacer" }), saveAll),
      runs.length
        ? div("wide", table(["run", "level", "time", "gold", "score", "ending", ""], { class: "runs" }, rows))
        : element("p", {
            class: "notice",
            text: "No runs yet. Play a level and store your run, or start the studio with --replays FOLDER.",
          }),
      folder && researchPanel("For researchers: my demonstrations", folder),
    ),
  );
  fill();
  const update = async () => {
    runs = await allRuns();
    fill();
  };
  const changed = () => update().catch(studio.failed);
  document.addEventListener("storechange", changed);
  return () => {
    document.removeEventListener("storechange", changed);
    results.forget();
  };
}

/* Plays the replays of visible rows, one after another, to show their gold, score and ending. */
class Results {
  constructor() {
    this.runs = new Map(); // row that has not been played -> run
    this.observer = new IntersectionObserver((entries) => this.see(entries));
    this.visible = new Set();
  }

  forget() {
    this.observer.disconnect();
    this.visible.clear();
    this.runs.clear();
  }

  watch(line, run) {
    if (run.outcome) return;
    this.runs.set(line, run);
    this.observer.observe(line);
  }

  see(entries) {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) this.visible.add(target);
      else this.visible.delete(target);
    }
    this.work();
  }

  async work() {
    if (this.working) return;
    this.working = true;
    for (let [line] = this.visible; line; [line] = this.visible) {
      this.visible.delete(line);
      this.observer.unobserve(line);
      const run = this.runs.get(line);
      try {
        const { level: id, inputs } = await findRun(run.path);
        const played = new Recording(await loadLevel(id), { inputs: bytes(inputs) });
        const [{ outcome, frames }, gold] = [played, played.gold()];
        Object.assign(run, { outcome, gold, score: outcome === "won" ? score(frames, gold) : null });
        showResult(line, run);
      } catch (error) {
        line.title = error.message;
      }
    }
    this.working = false;
  }
}

function listOf(problems) {
  return problems.map((text) => element("p", { class: "warn small", text }));
}

function row(run, names, studio, folder) {
  const act = (text, job) =>
    actionButton(text, ({ currentTarget }) => job(currentTarget).catch(studio.failed), {
      class: "quiet",
      "aria-label": `${text}: ${run.label}`,
    });
  const line = element(
    "tr",
    {},
    element("th", { scope: "row" }, element("a", { href: `#/replays/${run.path}`, text: run.label || "run" })),
    names.has(run.level)
      ? element("td", {}, element("a", { href: `#/play/${run.level}`, text: names.get(run.level) }))
      : element("td", {
          class: "muted",
          text: "its own",
          title: `level ${run.level.slice(0, 12)}, which is in no folder here: open the run to play it`,
        }),
    element("td", { text: seconds(run.frames) }),
    element("td", { "data-is": "gold" }),
    element("td", { "data-is": "score" }),
    element("td", { "data-is": "ending" }),
  );
  showResult(line, run);
  if (run.kind !== "runs") {
    line.append(element("td"));
    return line;
  }
  const remove = async () => {
    if (await confirmed("Remove this run?", `“${run.label}” is removed from this browser.`, "Remove"))
      await removeRun(run.number);
  };
  const add = async (button) => {
    const { added, demonstrations } = await demonstrate(run);
    button.disabled = true;
    showFolder(folder, demonstrations);
    const shift = `; training shifts its key presses slightly (${added.deviation_px} px off on average)`;
    studio.toast(`Added: ${added.file}${added.retimed ? shift : ""}`, "good");
  };
  line.append(
    element(
      "td",
      {},
      div(
        "bar",
        folder && run.outcome === "won" ? act("Add to my demonstrations", add) : null,
        act("Export …", () => exportDialog(run, names.get(run.level) ?? run.label)),
        act("Remove", remove),
      ),
    ),
  );
  return line;
}

/** Show a run's gold, score and ending, as far as they are known, in its row. */
function showResult(line, { gold, score: points, outcome, success }) {
  const ending =
    { won: "won", died: "died", running: "not finished" }[outcome] ??
    { true: "won", false: "not finished" }[success] ??
    "";
  const cell = (name) => line.querySelector(`[data-is=${name}]`);
  cell("gold").textContent = gold ?? "";
  cell("score").textContent = points?.toFixed(3) ?? "";
  cell("ending").textContent = ending;
  cell("ending").classList.toggle("good", ending === "won");
}

function showFolder(
  panel,
  { folder, recordings, levels, wanted, missing, categories, missing_categories: missingCategories, problems },
) {
  const share = element("i");
  share.style.width = `${Math.min(100, (100 * recordings) / wanted)}%`;
  const counts = Object.entries(categories)
    .map(([name, number]) => `${name} ${number}`)
    .join(", ");
  panel.replaceChildren(
    element(
      "p",
      {},
      `${recordings} of ${wanted} recordings, of ${levels} levels. `,
      missing ? `A training needs ${missing} more.` : "Enough for a training.",
      missingCategories.length ? ` None yet of: ${missingCategories.join(", ")}.` : "",
    ),
    element("div", { class: "meter", role: "img", "aria-label": `${recordings} of ${wanted}` }, share),
    element(
      "p",
      { class: "small muted" },
      counts ? `${counts}. ` : "",
      "Train on them: --replay-data-dir ",
      element("code", { text: folder }),
    ),
    ...listOf(problems),
  );
}
