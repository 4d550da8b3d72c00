/* The page: which part of the studio is shown, keys that work everywhere, files that are dropped, messages.
 *
 * A view is a module with
 *
 *     export async function show(element, studio, ...parts)   // parts: of the address, #/play/ID gives ID
 *
 * which fills the element and returns what ends it (a function, or nothing).  ``studio`` is what views share:
 *     go(hash)            show another view
 *     toast(text, kind)   a message for a few seconds; kind: "", "good", "bad"
 *     failed(error)       the same of an error
 *     openFiles(files)    of a file input, as if they had been dropped
 *     opened              the run document of the last replay that was opened, or null
 */

import { get, openFile } from "./api.js";
import { themeSwitch } from "./theme.js";

// tab: under which a view stands that has none of its own (hidden)
const VIEWS = [
  { name: "levels", title: "Levels", module: "./gallery.js" },
  { name: "play", title: "Play", module: "./play.js", tab: "levels", hidden: true },
  { name: "replays", title: "Runs", module: "./replays.js" },
  { name: "watch", title: "Watch", module: "./watch.js" },
  { name: "run", title: "Training", module: "./run.js", hidden: true }, // until the studio says that it follows one
];
const RETRY_MS = 1500;
const PATIENCE_MS = 400; // until a view that is slow says so

const view = document.getElementById("view");
let endView = null;
let shown = 0; // counts, so that a slow view gives way to a later one

const studio = {
  opened: null,
  go(hash) {
    if (location.hash === hash) showView();
    else location.hash = hash;
  },
  toast,
  openFiles,
  failed(error) {
    if (error.status !== 0) toast(error.message, "bad"); // without an answer the banner says it
    if (!("status" in error)) console.error(error); // a fault of the page
  },
};

function toast(text, kind = "") {
  const box = document.createElement("div");
  box.className = `toast ${kind}`;
  box.textContent = text;
  document.getElementById("toasts").append(box);
  setTimeout(() => box.remove(), kind === "bad" ? 9000 : 4000);
}

// ---------------------------------------------------------------------------------------------------------------------
// Views

function makeTabs() {
  const tabs = document.getElementById("tabs");
  for (const { name, title, hidden } of VIEWS) {
    if (hidden) continue;
    const link = document.createElement("a");
    link.href = `#/${name}`;
    link.textContent = title;
    link.dataset.view = name;
    tabs.append(link);
  }
}

async function showView() {
  const [name, ...parts] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  const wanted = VIEWS.find((one) => one.name === name) ?? VIEWS[0];
  const number = ++shown;
  endView?.();
  endView = null;
  for (const link of document.querySelectorAll("#tabs a")) {
    if (link.dataset.view === (wanted.tab ?? wanted.name)) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${wanted.title} · nppsim studio`;
  const element = document.createElement("div"); // each view has one of its own: a slow one cannot fill another's
  element.style.display = "contents";
  view.replaceChildren(element);
  const patience = setTimeout(() => view.append(notice("One moment", "Reading what is to be shown.")), PATIENCE_MS);
  try {
    const { show } = await import(wanted.module);
    const end = await show(element, studio, ...parts);
    if (number === shown) endView = end;
    else end?.();
  } catch (error) {
    if (number === shown) element.replaceChildren(notice("This cannot be shown", error.message));
    studio.failed(error);
  } finally {
    clearTimeout(patience);
    if (number === shown) view.replaceChildren(element);
  }
}

function notice(title, text) {
  const box = document.createElement("div");
  box.className = "notice";
  const heading = document.createElement("h1");
  heading.textContent = title;
  const words = document.createElement("p");
  words.textContent = text;
  box.append(heading, words);
  return box;
}

// ---------------------------------------------------------------------------------------------------------------------
// Files that are dropped

function acceptDrops() {
  let depth = 0; // of elements that the pointer has entered
  const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
  const count = (change) => {
    depth = Math.max(depth + change, 0);
    document.body.classList.toggle("dropping", depth > 0);
  };
  addEventListener("dragenter", (event) => hasFiles(event) && count(1));
  addEventListener("dragleave", (event) => hasFiles(event) && count(-1));
  addEventListener("dragover", (event) => hasFiles(event) && event.preventDefault());
  addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    depth = 0;
    count(0);
    openFiles(event.dataTransfer.files);
  });
}

/** Open files one after another, and show the last: a level to play, a replay to watch. */
async function openFiles(files) {
  let last = null;
  for (const file of files) {
    try {
      last = await openFile(file);
      toast(`${file.name} is open`, "good");
    } catch (error) {
      studio.failed(error);
    }
  }
  if (!last) return;
  studio.opened = last.run;
  studio.go(last.run ? "#/replays/opened" : `#/play/${last.level}`);
}

// ---------------------------------------------------------------------------------------------------------------------
// When the studio ends, and when it is there again

let waiting = false;

async function waitForStudio() {
  if (waiting) return;
  waiting = true;
  const box = document.createElement("div");
  box.className = "toast bad";
  box.id = "lost";
  box.textContent = "The studio has ended. Start it again: this page waits for it.";
  document.getElementById("toasts").append(box);
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    try {
      await get("state");
      break;
    } catch (error) {
      if (error.status === 0) continue;
      box.textContent = "The studio was started again. Open the address that it printed; this one has the token of before.";
      return;
    }
  }
  waiting = false;
  box.remove();
  document.dispatchEvent(new Event("studioback"));
}

// ---------------------------------------------------------------------------------------------------------------------
// Keys

function isTyping(target) {
  return target.closest?.("input, select, textarea, dialog, [contenteditable]");
}

addEventListener("keydown", (event) => {
  if (!event.altKey || event.ctrlKey || event.metaKey || isTyping(event.target)) return;
  const wanted = VIEWS.filter((one) => !one.hidden)[Number(event.key) - 1]; // Alt+1, Alt+2, ...
  if (!wanted) return;
  event.preventDefault();
  studio.go(`#/${wanted.name}`);
});

themeSwitch(document.getElementById("theme"));
get("state").then(({ follows }) => {
  VIEWS.find(({ name }) => name === "run").hidden = !follows;
}, studio.failed).then(() => {
  makeTabs();
  showView();
});
acceptDrops();
addEventListener("hashchange", showView);
document.addEventListener("studiolost", waitForStudio);
