/* The page: switches between views, opens dropped files, shows messages, handles global keys.
 *
 * A view is a module with a function
 *
 *     export async function show(element, studio, ...parts)   // parts: rest of the address, [ID] for #/play/ID
 *
 * that fills the element and may return a function to be called when the view is left.  ``studio`` has
 *     go(hash)            show another view
 *     toast(text, kind)   show a message for a few seconds; kind: "", "good" or "bad"
 *     failed(error)       show an error
 *     openFiles(files)    open files as if they had been dropped
 *     opened              run that was opened last, {label, level, inputs}, or null
 */

import { ROOT, TOKEN, features, get, isSite, useAddress, whileCompiling } from "./api.js";
import { byId, div, element, takesKeys } from "./elements.js";
import { openFile, resolveId } from "./library.js";
import { openLink } from "./share.js";
import { coloursSwitch, themeSwitch } from "./theme.js";

// A hidden view has no tab of its own; tab: the tab that is highlighted instead.  ofLevel: its address names a level.
const VIEWS = [
  { name: "levels", title: "Levels", module: "./gallery.js" },
  { name: "play", title: "Play", module: "./play.js", tab: "levels", hidden: true, ofLevel: true },
  { name: "episode", title: "Episode", module: "./episode.js", tab: "levels", hidden: true },
  { name: "inputs", title: "Inputs", module: "./input_editor.js", tab: "levels", hidden: true, ofLevel: true },
  { name: "edit", title: "Edit", module: "./editor.js", ofLevel: true },
  { name: "replays", title: "Runs", module: "./replays.js" },
  { name: "watch", title: "Watch", module: "./watch.js", ofLevel: true },
  { name: "run", title: "Training", module: "./run.js", hidden: true }, // shown if the studio follows a training
];
const FAULTS = [TypeError, ReferenceError, RangeError]; // errors of the page itself
const RETRY_MS = 700;
const MOST_WARNINGS = 3; // warnings shown per file
const NOTICE_DELAY_MS = 400; // delay before a notice appears while a view loads

const view = byId("view");
/** @type {(() => void) | null} */
let endView = null;
let failedView = false; // true if the view could not be loaded because the studio did not answer
let shown = 0; // number of the latest view; earlier ones that still load are discarded

const studio = {
  opened: null,
  go(hash) {
    if (location.hash === hash) showView();
    else location.hash = hash;
  },
  toast,
  openFiles,
  failed(error) {
    if (error.status !== 0 && error.status !== 401) toast(error.message, "bad"); // waitForStudio reports these two
    logFault(error);
  },
};

function logFault(error) {
  if (FAULTS.some((kind) => error instanceof kind)) console.error(error);
}

function toast(text, kind = "") {
  const box = element("div", { class: `toast ${kind}`, text });
  byId("toasts").append(box);
  setTimeout(() => box.remove(), kind === "bad" ? 9000 : 4000);
}

// ---------------------------------------------------------------------------------------------------------------------
// Views

function makeTabs() {
  const tabs = byId("tabs");
  for (const { name, title, hidden } of VIEWS) {
    if (hidden) continue;
    tabs.append(element("a", { href: `#/${name}`, "data-view": name, text: title }));
  }
}

async function showView() {
  const [name, ...parts] = location.hash.replace(/^#\/?/, "").split("/").map(decoded);
  const found = VIEWS.find((one) => one.name === (name || "levels"));
  const wanted = found ?? VIEWS[0];
  const number = ++shown;
  endView?.();
  endView = null;
  const dialogs = /** @type {NodeListOf<HTMLDialogElement>} */ (document.querySelectorAll("dialog[open]"));
  for (const dialog of dialogs) dialog.close(); // of the previous view
  for (const link of document.querySelectorAll("#tabs a")) {
    if (link.getAttribute("data-view") === (wanted.tab ?? wanted.name)) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${wanted.title} · nppsim studio`;
  const root = div("root"); // a new one per view, so that a slow view cannot fill a later one's
  view.replaceChildren(root);
  const loading = notice("Loading", "The view is being loaded.");
  const timer = setTimeout(() => view.append(loading), NOTICE_DELAY_MS);
  const stopPolling = whileCompiling((text) => (loading.querySelector("p").textContent = text));
  failedView = false;
  try {
    if (location.hash.startsWith("#level=")) {
      history.replaceState(null, "", opened(await openLink(location.hash)));
      showView();
      return;
    }
    if (!found) throw new Error(`There is no view “${name}”; choose one above.`);
    const { show } = await import(wanted.module).catch(async (error) => {
      await features(); // fails if the studio has ended
      throw error;
    });
    if (wanted.ofLevel && parts[0]) parts[0] = await resolveId(parts[0]);
    const end = await show(root, studio, ...parts);
    if (number === shown) endView = end;
    else end?.();
  } catch (error) {
    if (number === shown) root.replaceChildren(notice("This cannot be shown", error.message));
    if (number === shown) failedView = error.status === 0 || error.status === 401;
    logFault(error);
  } finally {
    clearTimeout(timer);
    stopPolling();
    loading.remove(); // other elements must not move, since they would lose the focus
  }
}

/** Decode a part of an address; a damaged one stays as it is. */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

function notice(title, text) {
  return div("notice", element("h1", { text: title }), element("p", { text }));
}

// ---------------------------------------------------------------------------------------------------------------------
// Dropped files

function acceptDrops() {
  let depth = 0; // number of nested elements that the pointer has entered
  const filesOf = ({ dataTransfer }) => (dataTransfer?.types.includes("Files") ? dataTransfer.files : null);
  const count = (change) => {
    depth = Math.max(depth + change, 0);
    document.body.classList.toggle("dropping", depth > 0);
  };
  addEventListener("dragenter", (event) => filesOf(event) && count(1));
  addEventListener("dragleave", (event) => filesOf(event) && count(-1));
  addEventListener("dragover", (event) => filesOf(event) && event.preventDefault());
  addEventListener("drop", (event) => {
    const files = filesOf(event);
    if (!files) return;
    event.preventDefault();
    depth = 0;
    count(0);
    openFiles(files);
  });
}

/** Open files one after another and show the last one: a level to play, a campaign file in the gallery, a replay to
 *  watch. */
async function openFiles(files) {
  /** @type {Awaited<ReturnType<typeof openFile>> | null} */
  let last = null;
  for (const file of files) {
    try {
      last = await openFile(file);
      toast(last.note, "good");
      const { warnings } = last;
      for (const text of warnings.slice(0, MOST_WARNINGS)) toast(`${file.name}: ${text}`, "bad");
      if (warnings.length > MOST_WARNINGS)
        toast(`${file.name}: ${warnings.length - MOST_WARNINGS} more lines like these`, "bad");
    } catch (error) {
      studio.failed(error);
    }
  }
  if (!last) return;
  if (last.levels > 1) studio.go(`#/levels/${encodeURIComponent(last.category ?? "")}`);
  else if (last.level) studio.go(opened(last));
  else studio.go(last.view ?? "#/replays");
}

/** Return the address that shows an opened level or run. */
function opened({ level, run }) {
  studio.opened = run;
  return run ? "#/replays/opened" : `#/play/${level}`;
}

// ---------------------------------------------------------------------------------------------------------------------
// Reconnection after the studio has ended

let waiting = false;

/** Show a message and retry until the studio answers, then dispatch "studioback". */
async function waitForStudio() {
  if (waiting) return;
  waiting = true;
  const words = element("p", { text: "The studio has ended. Start it again, then open the address that it prints." });
  const box = element("div", { class: "toast bad", id: "lost" }, words);
  byId("toasts").append(box);
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    try {
      await get("state");
      break;
    } catch (error) {
      if (error.status === 401) await newAddress(box, words);
    }
  }
  waiting = false;
  box.remove();
  document.dispatchEvent(new Event("studioback"));
  if (failedView) showView();
}

/** Ask for the address of a restarted studio; resolves when it is entered, or opened in another tab. */
function newAddress(box, words) {
  const before = box.querySelector("input");
  const what = before ? "The studio does not accept this address." : "The studio was restarted, or needs a token.";
  words.textContent = `${what} Paste the address that it printed last to continue.`;
  before?.remove();
  const field = element("input", {
    type: "text",
    "aria-label": "Address of the studio",
    placeholder: "http://127.0.0.1:8765/?token=…",
    autocomplete: "off",
  });
  box.append(field);
  return new Promise((resolve) => {
    addEventListener("storage", ({ key }) => key === TOKEN && resolve(null)); // the next request reads it
    field.addEventListener("change", () => {
      useAddress(field.value);
      resolve(null);
    });
  });
}

// ---------------------------------------------------------------------------------------------------------------------
// Keys

addEventListener("keydown", (event) => {
  if (!event.altKey || event.ctrlKey || event.metaKey || takesKeys(event.target)) return;
  const wanted = VIEWS.filter((one) => !one.hidden)[Number(event.key) - 1]; // Alt+1, Alt+2, ...
  if (!wanted) return;
  event.preventDefault();
  studio.go(`#/${wanted.name}`);
});

themeSwitch(byId("theme"));
coloursSwitch(byId("colours"));
features()
  .then(({ follows }) => {
    VIEWS[VIEWS.length - 1].hidden = !follows;
  }, studio.failed)
  .then(() => {
    makeTabs();
    showView();
  });
acceptDrops();
if (isSite) navigator.serviceWorker?.register(new URL("worker.js", ROOT)).catch(() => {}); // it works online without
addEventListener("hashchange", showView);
document.addEventListener("studiolost", waitForStudio);
