/* The editor: #/edit continues with the current level, #/edit/ID opens another one, #/edit/new an empty one. */

import { draftOf as draftOfLevel, levelToText } from "../../../wasm/files.js";
import { levelFromBytes, levelFromDraft, levelToBytes } from "../../../wasm/level.js";
import { features } from "./api.js";
import { EditorCanvas } from "./editor_canvas.js";
import { showChecks } from "./editor_checks.js";
import { Editor } from "./editor_state.js";
import { askToDrop, chooseLevel, saveInFolder, showKeys } from "./editor_dialogs.js";
import { showPalette, showProperties } from "./editor_palette.js";
import { actionButton, div, element, takesKeys } from "./elements.js";
import { KINDS } from "./kinds.js";
import { History, draftOf, emptyState, stateOf } from "./level_model.js";
import { exportDialog } from "./export_dialog.js";
import { aboutLevel, addMaps, fileName, saveFile } from "./library.js";
import { bytes } from "./arrays.js";
import { copyLink } from "./share.js";
import { drafts, putDraft, removeDrafts, removeLevels, storedRuns } from "./store.js";

const ZOOM = 1.3;
const DAY_MS = 86_400_000;
const STORED = "nppsim.draft"; // in sessionStorage: id of this tab's draft
const lockOf = (id) => `nppsim ${id}`; // Web Lock that a tab holds while it edits a draft
/** @type {Editor | null} */
let stored = null; // the Editor; survives a change of the view
/** @type {{id: string, state: any} | null} */
let tried = null; // {id, state} of the level that was played or saved last

export async function show(view, studio, id) {
  const editor = (stored ??= await restored(studio));
  const isCurrent = tried && tried.id === id && tried.state === editor.state;
  if (id && !isCurrent && (editor.history.isSaved || (await askToDrop()))) await load(editor, studio, id);
  if (id) history.replaceState(null, "", "#/edit"); // so that "back" returns to the current level

  const canvas = element("canvas", {
    id: "editor",
    tabindex: 0,
    role: "application",
    "aria-label": "Level. Arrow keys move the cursor, space presses, question mark lists the keys.",
    "aria-describedby": "editor-here",
  });
  const here = element("span", { id: "editor-here", class: "small", role: "status" });
  const tools = div("hud bar");
  const stage = element("section", { class: "stage", "aria-label": "Level" }, canvas, tools, div("keys", here));
  const [checks, palette, properties, file] = ["Check", "Tools", "Properties", "Level"].map((label) =>
    element("section", { class: "panel", "aria-label": label }),
  );
  properties.classList.add("properties");
  file.classList.add("file");
  view.append(div("split editor", stage, div("panels", checks, properties, palette, file)));

  const drawn = new EditorCanvas(canvas, editor);
  const commands = commandsOf(editor, drawn, studio, await features());
  const onBar = commands.filter(({ title }) => title).map((command) => ({ command, button: makeButton(command) }));
  tools.append(...onBar.map(({ button }) => button));
  const title = titleField(editor);
  file.append(
    element("h2", { text: "Level" }),
    title,
    div("bar", ...commands.filter(({ words }) => words).map(makeWords)),
  );
  const ends = [
    showPalette(palette, editor),
    showProperties(properties, editor),
    showChecks(checks, editor, drawn, studio),
  ];

  const update = () => {
    for (const { command, button } of onBar) button.disabled = command.enabled ? !command.enabled() : false;
    if (document.activeElement !== title.lastChild) title.lastChild.value = editor.state.title;
    here.textContent ||= editor.whatIsHere();
  };
  /** @type {(event: any) => void} */
  const say = ({ detail }) => {
    here.textContent = detail;
  };
  const key = (event) => press(event, commands);
  editor.addEventListener("change", update);
  editor.addEventListener("announce", say);
  addEventListener("keydown", key);
  update();
  canvas.focus({ preventScroll: true });
  return () => {
    editor.release();
    editor.removeEventListener("change", update);
    editor.removeEventListener("announce", say);
    removeEventListener("keydown", key);
    for (const end of ends) end();
    drawn.destroy();
  };
}

/** Return an Editor with the draft of this tab before a reload, else with the latest unsaved draft that no other tab
 *  edits, else with an empty level. */
async function restored(studio) {
  const own = sessionStorage.getItem(STORED);
  const all = await drafts();
  await removeDrafts(all.filter((one) => one.saved && Date.now() - one.changed > DAY_MS).map(({ id }) => id));
  const found = all.filter(({ id, saved }) => !saved || id === own);
  found.sort((a, b) => Number(b.id === own) - Number(a.id === own));
  /** @type {(typeof found)[number] | null} */
  let mine = null;
  for (const one of found) if (!mine && (await locked(one.id))) mine = one;
  const editor = new Editor(new History(mine ? stateOf(mine.draft) : emptyState()));
  editor.history.saved = mine?.saved ? editor.state : emptyState();
  const id = mine?.id ?? `draft-${Date.now()}-${Math.random().toString(36).slice(2)}`;
  if (!mine) await locked(id);
  sessionStorage.setItem(STORED, id);
  let [writing, waiting] = [false, false]; // one write at a time; the last state wins
  const write = async () => {
    waiting = true;
    if (writing) return;
    for (writing = true; waiting;) {
      waiting = false;
      await putDraft(id, draftOf(editor.state), editor.history.isSaved).catch(studio.failed);
    }
    writing = false;
  };
  editor.history.addEventListener("change", write);
  return editor;
}

/** Lock a draft until this tab closes; resolves to false if another tab holds it.  Without encryption, browsers have no
 *  locks. */
function locked(id) {
  if (!navigator.locks) return Promise.resolve(id === sessionStorage.getItem(STORED));
  return new Promise((resolve) => {
    navigator.locks.request(lockOf(id), { ifAvailable: true }, (lock) => {
      resolve(lock !== null);
      return lock && new Promise(() => {});
    });
  });
}

async function load(editor, studio, id) {
  const draft = (await drafts()).find((one) => one.id === id)?.draft;
  const level = draft || id === "new" ? null : levelFromBytes(bytes((await aboutLevel(id)).map));
  const { draft: found, lost } = level ? draftOfLevel(level) : { draft, lost: [] };
  editor.reset();
  editor.history.load(found ? stateOf(found) : emptyState());
  for (const text of lost) studio.toast(`This level cannot be stored unchanged: ${text}.`, "bad");
}

// ---------------------------------------------------------------------------------------------------------------------
/** @typedef {object} Command
 * @property {string[]} [keys]
 * @property {string} [title] - text of a button above the canvas
 * @property {string} [words] - text of a button in the panel
 * @property {string} [hint]
 * @property {() => void} run
 * @property {() => boolean} [enabled]
 * @property {boolean} [follow] - whether the view follows the cursor
 * @property {boolean} [main] */

/** @returns {Command[]} */
function commandsOf(editor, drawn, studio, can) {
  const add = async () => {
    const { state } = editor;
    const [id] = await addMaps([{ map: levelToBytes(levelFromDraft(draftOf(state))), name: "untitled" }]);
    const before = tried;
    tried = { id, state };
    const stays = !before || before.id === id || (await storedRuns()).some(({ level }) => level === before.id);
    if (!stays) await removeLevels([before.id]); // an earlier version of this level
    return id;
  };
  const guarded = (job) => () => Promise.resolve().then(job).catch(studio.failed);
  const save = (format) =>
    guarded(() => {
      const level = levelFromDraft(draftOf(editor.state));
      const name = fileName({ title: level.title, id: "level" }) + (format === "map" ? ".map" : ".level");
      saveFile(format === "map" ? levelToBytes(level) : levelToText(level), name);
      editor.history.markSaved();
      studio.toast(`${name} is saved`, "good");
    });
  const tryIt = guarded(async () => studio.go(`#/play/${await add()}`));
  const tools = ["select", "tile", "fill", "entity", "erase"].map((tool, i) => ({
    keys: ["VBFAE"[i]],
    run: () => editor.choose(tool),
  }));
  /** @type {Command[]} */
  const commands = [
    ...tools,
    { keys: ["Ctrl+Z"], title: "↶", hint: "Undo", run: () => editor.undo(), enabled: () => editor.history.canUndo },
    {
      keys: ["Ctrl+Shift+Z", "Ctrl+Y"],
      title: "↷",
      hint: "Redo",
      run: () => editor.redo(),
      enabled: () => editor.history.canRedo,
    },
    {
      keys: ["Ctrl+C"],
      title: "Copy",
      hint: "Copy the region",
      run: () => editor.copy(),
      enabled: () => editor.region,
    },
    { keys: ["Ctrl+X"], run: () => editor.cut() },
    {
      keys: ["Ctrl+V"],
      title: "Paste",
      hint: "Paste at the region or cursor",
      run: () => editor.paste(),
      enabled: () => editor.clip,
    },
    { keys: ["H"], title: "Mirror", hint: "Mirror the region or the level horizontally", run: () => editor.mirror() },
    { keys: ["+", "="], title: "+", hint: "Zoom in", run: () => drawn.zoom(ZOOM) },
    { keys: ["-"], title: "−", hint: "Zoom out", run: () => drawn.zoom(1 / ZOOM) },
    { keys: ["0"], title: "⤢", hint: "Show the whole level", run: () => drawn.fit() },
    { keys: ["G"], title: "#", hint: "Show or hide the grid", run: () => drawn.show({ grid: !drawn.grid }) },
    {
      keys: ["P"],
      title: "▶ Try",
      hint: "Play the level",
      main: true,
      run: tryIt,
      enabled: () => editor.state.spawn,
    },
    { keys: ["?"], title: "?", hint: "List the keys", run: () => showKeys() },
    { keys: ["I"], run: () => editor.pick(editor.cursor) },
    { keys: ["L"], run: () => editor.fill() },
    { keys: ["R"], run: () => editor.turn(1) },
    { keys: ["Shift+R"], run: () => editor.turn(-1) },
    { keys: ["M"], run: () => editor.change(1) },
    { keys: ["]", "."], run: () => editor.chooseTile(editor.tile + 1) },
    { keys: ["[", ","], run: () => editor.chooseTile(editor.tile - 1) },
    { keys: ["K"], run: () => nextKind(editor, 1) },
    { keys: ["Shift+K"], run: () => nextKind(editor, -1) },
    { keys: ["N"], run: () => editor.next(1), follow: true },
    { keys: ["Shift+N"], run: () => editor.next(-1), follow: true },
    { keys: ["Ctrl+A"], run: () => editor.selectAll() },
    { keys: ["Delete", "Backspace"], run: () => editor.remove() },
    { keys: ["Escape"], run: () => editor.cancel() },
    { keys: ["Ctrl+S"], words: "Save as file", run: save("map") },
    { words: "Save as text", run: save("text") },
    ...(can.folders ? [{ words: "Save in a folder …", run: guarded(() => saveInFolder(editor, studio)) }] : []),
    {
      words: "Copy link",
      run: guarded(() => copyLink(studio, { map: levelToBytes(levelFromDraft(draftOf(editor.state))) })),
    },
    {
      words: "Export to the game …",
      run: guarded(() => {
        const level = levelFromDraft(draftOf(editor.state));
        return exportDialog({ map: levelToBytes(level) }, level.title.trim() || "level");
      }),
    },
    { words: "Edit another …", run: guarded(() => chooseLevel(studio)) },
    { words: "New level", run: () => studio.go("#/edit/new") },
  ];
  return commands.map((command) => ({
    ...command,
    run: () => {
      command.run();
      if (command.follow) drawn.follow();
    },
  }));
}

function nextKind(editor, by) {
  const all = [...KINDS.keys()];
  editor.chooseEntity(
    all[(all.indexOf(editor.entity.kind) + (editor.tool === "entity" ? by : 0) + all.length) % all.length],
  );
}

function press(event, commands) {
  if (event.altKey || document.querySelector("dialog[open]")) return;
  const name = event.key.length === 1 ? event.key.toUpperCase() : event.key;
  const shifted = event.shiftKey && /^[A-Z]$/.test(name);
  const pressed = `${event.ctrlKey || event.metaKey ? "Ctrl+" : ""}${shifted ? "Shift+" : ""}${name}`;
  const command = commands.find(({ keys }) => keys?.includes(pressed));
  if (!command || (command.enabled && !command.enabled())) return;
  if (takesKeys(event.target)) {
    if (pressed !== "Ctrl+S") return;
    event.target.blur(); // applies the typed value
  }
  event.preventDefault();
  command.run();
}

function makeButton(command) {
  const { title, hint, keys, main, run } = command;
  return actionButton(title, run, {
    class: main ? "primary" : title.length < 2 ? "icon" : null,
    title: `${hint} (${keys[0]})`,
    "aria-label": hint,
    "aria-keyshortcuts": keys[0].replace("Ctrl", "Control"),
  });
}

function makeWords({ words, keys, run }) {
  return actionButton(words, run, { title: keys ? `${words} (${keys[0]})` : null });
}

function titleField(editor) {
  const input = element("input", { type: "text", maxlength: 128, placeholder: "untitled" });
  input.addEventListener("change", () => editor.history.apply({ ...editor.state, title: input.value }));
  return element("label", { class: "wide-field" }, "Title", input);
}
