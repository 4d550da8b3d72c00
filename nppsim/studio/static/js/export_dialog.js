/* "Export to the game": files of a level and of a run, where they go, and what may end differently (docs/export.md). */

import { cardOf, levelToLine, replayToBytes } from "../../../wasm/files.js";
import { levelFromBytes, levelToBytes } from "../../../wasm/level.js";
import { bytes } from "./arrays.js";
import { actionButton, ask, choice, element, supportBanner } from "./elements.js";
import { fileName, saveFile } from "./library.js";

// Formats: [button, suffix, where the file goes].
const RUN = [
  [
    ...["Attract file", ".attract"],
    "A demo of the game. Its own demos are named by a number, without suffix, and end in death, often by " +
      "self-destruct. Keep a copy of a demo that you replace.",
  ],
  ["Replay file", ".replay", "A format of the community: for this studio and other tools, not for the game."],
];
const LEVEL = [
  [
    ...["Campaign file", ".txt"],
    "One line. The game's folder NPP/Levels has S.txt, SI.txt, SL.txt …, with a line per level: put this one in " +
      "the place of another, such as the first of SI.txt, the level SI-A-00-00. Keep a copy of the file.",
  ],
  [
    ...["Map file", ".map"],
    "The game's layout of a single level, for this studio and other tools. Where the game reads these is not known.",
  ],
];

/** Let the browser save a file.  shown: {map, inputs and outcome of a run, if any}. */
export function saveAs(suffix, { map, inputs, outcome }, title) {
  const level = levelFromBytes(bytes(map), title);
  const won = outcome === "won";
  const write = {
    ".attract": () => replayToBytes(level, inputs, { format: "attract" }),
    ".replay": () => replayToBytes(level, inputs, { success: won }),
    ".txt": () => new TextEncoder().encode(`${levelToLine(level)}\n`),
    ".map": () => levelToBytes(level),
  };
  saveFile(write[suffix](), fileName({ title, id: "level" }) + suffix);
}

/** Return the files of a level, and of its run if there is one, as a list.  shown: as for ``saveAs``. */
export function exportFiles(shown, title) {
  const status = element("p", { class: "small bad", role: "status" });
  const save = (suffix) => {
    try {
      saveAs(suffix, shown, title);
    } catch (error) {
      status.textContent = error.message;
    }
  };
  const banner = supportBanner(cardOf(levelFromBytes(bytes(shown.map), title), { name: title }));
  const rules = banner
    ? "Where rules are modelled, a run may end differently in the game."
    : "The rules of this level were measured on recordings of the game.";
  const files = [...(shown.inputs ? RUN : []), ...LEVEL].map(([text, suffix, where]) => [
    element("dt", {}, actionButton(text, () => save(suffix))),
    element("dd", { class: "small", text: where }),
  ]);
  const text = `${rules} The game ends a run when its clock is at 0.`;
  return [banner, element("p", { class: "small muted", text }), element("dl", { class: "exports" }, files), status];
}

export const exportDialog = (shown, title) =>
  ask("Export to the game", exportFiles(shown, title), choice("", "Close", "primary"));
