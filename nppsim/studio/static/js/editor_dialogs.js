/* The editor's dialogs: list of keys, choice of a level, saving in a folder. */

import { levelFromDraft, levelToBytes } from "../../../wasm/level.js";
import { get, post } from "./api.js";
import { ask, choice, confirmed, div, element, selectOf, tableRow } from "./elements.js";
import { draftOf } from "./level_model.js";
import { allLevels, fileName, openFile } from "./library.js";
import { text as base64 } from "./arrays.js";
import { drafts } from "./store.js";

const KEYS = [
  ["Arrows", "move the cursor: by tiles, or by quarter tiles for entities (with Shift by tiles)"],
  ["Space", "press, like the mouse button; hold it and move the cursor to draw or drag"],
  ["Enter", "press; when drawing or selecting, press it again to release"],
  ["V B F A E", "tools: select, draw, fill, place, erase"],
  ["I", "pick up the entity or tile under the cursor"],
  ["[ ]  , .", "previous or next tile"],
  ["K, Shift+K", "next or previous entity to place"],
  ["R, Shift+R", "turn the selected entity, or the one to place"],
  ["M", "next mode of this entity"],
  ["N, Shift+N", "select the next or previous entity or switch"],
  ["Delete", "remove the selection, or the object under the cursor"],
  ["L", "fill the region, or the connected tiles"],
  ["H", "mirror the region or the level"],
  ["Ctrl+C X V", "copy, cut, paste a region"],
  ["Ctrl+A", "select the whole level"],
  ["Ctrl+Z, Ctrl+Y", "undo, redo"],
  ["+ − 0", "zoom in, zoom out, show all (mouse: wheel; middle button moves)"],
  ["G", "grid"],
  ["P", "play the level"],
  ["Ctrl+S", "save as a file"],
  ["Escape", "cancel, or deselect"],
];

export function showKeys() {
  const rows = KEYS.map(([keys, does]) =>
    tableRow(element("th", { scope: "row", text: keys }), does),
  );
  return ask("Keys", div("wide", element("table", {}, element("tbody", {}, rows))), choice("", "Close", "primary"));
}

/** Ask whether the unsaved changes of the edited level may be discarded. */
export function askToDrop() {
  return confirmed("Edit another level?", "The level in the editor has unsaved changes.", "Discard the changes");
}

export async function chooseLevel(studio) {
  const [{ levels }, stored] = await Promise.all([allLevels(), drafts()]);
  const select = selectOf("Level", [
    ...levels.map(({ id, name, category }) => [id, category ? `${category}: ${name}` : name]),
    ...stored.map(({ id, draft, changed }) => [
      id,
      `draft: ${draft.title || "untitled"}, ${new Date(changed).toLocaleString()}`,
    ]),
  ]);
  const file = element("input", { type: "file", "aria-label": "A level file or replay of yours" });
  const contents = div(
    "",
    element("p", {}, element("label", { class: "wide-field" }, "Level", select)),
    element("p", {}, element("label", { class: "wide-field" }, "or a file", file)),
  );
  if ((await ask("Edit another level", contents, [choice("", "Cancel"), choice("edit", "Edit", "primary")])) !== "edit")
    return;
  const id = file.files.length ? (await openFile(file.files[0])).level : select.value;
  studio.go(`#/edit/${id}`);
}

/** Save the level in one of the studio's folders after a confirmation. */
export async function saveInFolder(editor, studio) {
  const { folders } = await get("edit/folders");
  if (!folders.length) {
    const text = element("p", {
      text:
        "This studio has no folder in which levels can be saved. Level sets cannot be extended, because their " +
        "index.json lists each level. Start the studio with --levels SET FOLDER, where FOLDER is a plain folder of " +
        'level files, or use "Save as file".',
    });
    await ask("Save in a folder", text, choice("", "Close", "primary"));
    return;
  }
  const several = folders.length > 1; // then no folder is a default: one may be the game's
  const choices = folders.map((text, i) => [i, text]);
  const folder = selectOf("Folder", several ? [["", "choose a folder"], ...choices] : choices);
  folder.required = true;
  const input = element("input", {
    type: "text",
    required: true,
    maxlength: 80,
    pattern: "[\\p{L}\\p{N}_][\\p{L}\\p{N}_ .\\-]*",
    title: "letters, digits, spaces, _ . and -; the first is a letter, a digit or _",
    value: fileName({ title: editor.state.title, id: "level" }).slice(0, 80),
  });
  const contents = div(
    "",
    element("p", {}, element("label", { class: "wide-field" }, "Folder", folder)),
    element("p", {}, element("label", { class: "wide-field" }, "Name", input)),
  );
  if ((await ask("Save in a folder", contents, [choice("", "Cancel"), choice("save", "Save", "primary")])) !== "save")
    return;
  const map = base64(levelToBytes(levelFromDraft(draftOf(editor.state))));
  const request = { map, folder: Number(folder.value), name: input.value, replace: false };
  let saved = await post("edit/save", request);
  if (saved.exists) {
    if (!(await confirmed("Replace it?", `The file ${saved.exists} exists already.`, "Replace"))) return;
    saved = await post("edit/save", { ...request, replace: true });
  }
  editor.history.markSaved();
  studio.toast(`Saved as ${saved.saved}`, "good");
}
