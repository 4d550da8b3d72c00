/* View "Runs": lists stored runs and replays, and shows one of them, with the other runs of its level. */

import { features, get } from "./api.js";
import { runDocument } from "./documents.js";
import { element, seconds } from "./elements.js";
import { loadLevel, loadRun } from "./engine.js";
import { allLevels, findRun, saveFile } from "./library.js";
import { Player } from "./player.js";
import { bytes } from "./recording.js";
import { copyLink } from "./share.js";
import { exportAll, removeRun, storedRuns } from "./store.js";
import { demonstrate, saveRun } from "./store_dialog.js";

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
  const run = runDocument(level, bytes(stored.inputs), stored.label);
  const place = element("div");
  const others = element("div", { class: "bar others" });
  root.append(
    element(
      "div",
      { class: "page" },
      element(
        "div",
        { class: "bar heading" },
        element("h1", { text: run.label || level.name }),
        element("span", { class: "muted", text: level.name }),
        element("span", { class: "spacer" }),
        path === "opened/undefined"
          ? null
          : element("a", { class: "button", href: `#/inputs/${level.id}/${path}`, text: "Edit its inputs" }),
        element("button", {
          type: "button",
          text: "Copy link",
          onclick: () => copyLink(studio, level, bytes(stored.inputs)).catch(studio.failed),
        }),
        element("a", { class: "button", href: `#/play/${level.id}`, text: "Play this level" }),
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
    const button = element("button", {
      type: "button",
      text: `${one.label}, ${seconds(one.frames)}`,
      onclick: async () => {
        button.disabled = true;
        try {
          player.add(await loadRun(one.path, level));
          place.focus({ preventScroll: true }); // the space bar would scroll the page
        } catch (error) {
          button.disabled = false;
          studio.failed(error);
        }
      },
    });
    others.append(button);
  }
  return () => player.destroy();
}

/** Return stored runs, newest first, then replays, each with its path in addresses. */
async function allRuns() {
  const [runs, { replays }] = await Promise.all([storedRuns(), get("replays")]);
  const pathed = (kind) => (one) => ({ ...one, kind, path: `${kind}/${one.number}` });
  return [...runs.map(pathed("runs")), ...replays.map(pathed("replays"))];
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
  const folder = writes ? element("section", { class: "panel", "aria-label": "My demonstrations" }) : null;
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
    rows.replaceChildren(...found.slice(0, MOST_ROWS).map((run) => row(run, names, studio, folder)));
  };
  const saveAll = element("button", {
    type: "button",
    text: "Save everything as a file",
    title: "stored runs, best runs, opened levels and drafts; drop the file on the page of another browser to add them",
    onclick: () => exportAll().then((data) => saveFile(data, "nppsim-runs.json"), studio.failed),
  });
  const heads = ["run", "level", "time", "gold", "score", "ending", ""].map((text) =>
    element("th", { scope: "col", text }),
  );
  root.append(
    element(
      "div",
      { class: "page" },
      folder,
      listOf(problems),
      element("div", { class: "bar above" }, search, count, element("span", { class: "spacer" }), saveAll),
      runs.length
        ? element(
            "div",
            { class: "wide" },
            element("table", { class: "runs" }, element("thead", {}, element("tr", {}, heads)), rows),
          )
        : element("p", {
            class: "notice",
            text: "No runs yet. Play a level and store your run, or start the studio with --replays FOLDER.",
          }),
    ),
  );
  fill();
  const update = async () => {
    runs = await allRuns();
    fill();
  };
  const changed = () => update().catch(studio.failed);
  document.addEventListener("storechange", changed);
  return () => document.removeEventListener("storechange", changed);
}

function listOf(problems) {
  return problems.map((text) => element("p", { class: "warn small", text }));
}

function row(run, names, studio, folder) {
  const act = (text, job) =>
    element("button", {
      type: "button",
      class: "quiet",
      text,
      "aria-label": `${text}: ${run.label}`,
      onclick: ({ currentTarget }) => job(currentTarget).catch(studio.failed),
    });
  const ending =
    { won: "won", died: "died", running: "not finished" }[run.outcome] ??
    { true: "won", false: "not finished" }[run.success] ??
    "";
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
    element("td", { text: run.gold ?? "" }),
    element("td", { text: run.score?.toFixed(3) ?? "" }),
    element("td", { class: ending === "won" ? "good" : "", text: ending }),
  );
  if (run.kind !== "runs") {
    line.append(element("td"));
    return line;
  }
  const add = async (button) => {
    const { added, demonstrations } = await demonstrate(run);
    button.disabled = true;
    showFolder(folder, demonstrations);
    const shift = `; training shifts its key presses slightly (${added.deviation_px} px off on average)`;
    studio.toast(`Added: ${added.file}${added.retimed ? shift : ""}`, "good");
  };
  const save = (format) => Promise.resolve().then(() => saveRun(run, names.get(run.level) ?? run.label, format));
  line.append(
    element(
      "td",
      {},
      element(
        "div",
        { class: "bar" },
        folder && run.outcome === "won" ? act("Add to my demonstrations", add) : null,
        act("Replay file", () => save("compact")),
        act("Attract file", () => save("attract")),
        act("Remove", () => removeRun(run.number)),
      ),
    ),
  );
  return line;
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
    element("h2", { text: "My demonstrations" }),
    element(
      "p",
      {},
      `${recordings} of ${wanted} recordings, of ${levels} levels. `,
      missing ? `${missing} more make a data set.` : "Enough for a data set.",
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
