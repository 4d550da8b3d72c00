/* Dialog that stores a run under a name, then offers to download it or to add it to the demonstrations. */

import { levelFromBytes } from "../../../wasm/level.js";
import { replayToBytes } from "../../../wasm/files.js";
import { features, post } from "./api.js";
import { actionButton, div, element, seconds, supportBanner } from "./elements.js";
import { fileName, saveFile } from "./library.js";
import { addRun } from "./store.js";
import { bytes, text as base64 } from "./arrays.js";

/** Let the browser save a run as a replay file.  run: {map, inputs, outcome}.  format: "compact" or "attract". */
export function saveRun({ map, inputs, outcome, level: id }, title, format) {
  const data = replayToBytes(levelFromBytes(bytes(map)), inputs, {
    format,
    success: outcome === "won" && format === "compact",
  });
  saveFile(data, fileName({ title, id }) + (format === "compact" ? ".replay" : ".attract"));
}

/** Write a run to the folder of demonstrations; returns {added, demonstrations}. */
export function demonstrate({ map, inputs, category }) {
  return post("demonstrations", { map: base64(bytes(map)), inputs: base64(inputs), category: category ?? "" });
}

/** Show the dialog for a Recording; resolves when it is closed. */
export async function storeDialog(recording) {
  const { demonstrations: writes } = await features();
  const { level, outcome, frames } = recording;
  const field = element("input", {
    type: "text",
    maxlength: 100,
    value: `my run, ${seconds(frames)}`,
    "aria-label": "Name",
    autocomplete: "off",
  });
  const status = element("p", { class: "small", role: "status" });
  const close = actionButton("Close", () => dialog.close());
  const dialog = element("dialog", { class: "store-dialog", "aria-label": "Store this run" });
  const ending = { won: "finishes the level", died: "ends in death", running: "stops before the exit" }[outcome];

  const store = async () => {
    let stored;
    try {
      stored = await addRun(recording, field.value.trim() || "my run");
    } catch (error) {
      const inputs = Uint8Array.from(recording.inputs);
      const run = { level: level.id, map: level.map, outcome, inputs };
      const save = actionButton("Save the run as a replay file", () => saveRun(run, level.name, "compact"));
      status.replaceChildren(error.message, " ", save);
      status.className = "small bad";
      return;
    }
    const act = (text, job, attributes = {}) =>
      element("button", {
        type: "button",
        text,
        ...attributes,
        onclick: async (event) => {
          try {
            await job(event.currentTarget);
          } catch (error) {
            status.textContent = error.message;
            status.className = "small bad";
          }
        },
      });
    const add = async (button) => {
      const { added, demonstrations: d } = await demonstrate(stored);
      button.disabled = true;
      status.className = "small good";
      const how = added.retimed
        ? " Training shifts its key presses slightly, as agents need them " +
          `(${added.deviation_px} px off on average; it still finishes).`
        : "";
      status.textContent = `Added: ${added.file}.${how} ${d.recordings} of ${d.wanted} recordings for a training.`;
    };
    const isDemonstration = writes && outcome === "won";
    const primary = { class: "primary", id: "demonstrate" };
    const demonstration = isDemonstration ? act("Add to my demonstrations", add, primary) : null;
    const title = level.name;
    const replay = act("Replay file", () => saveRun(stored, title, "compact"), {
      title: "to watch here, or to train on",
    });
    dialog.replaceChildren(
      element("h2", { text: stored.label }),
      element("p", {
        class: "muted",
        text: `Stored in this browser: ${seconds(stored.frames)}, ${ending}. To use it elsewhere:`,
      }),
      supportBanner(level) ?? "",
      div(
        "bar",
        demonstration,
        replay,
        act("Attract file", () => saveRun(stored, title, "attract"), { title: "to watch in the real game" }),
      ),
      status,
      div("bar", element("span", { class: "spacer" }), close),
    );
    (demonstration ?? replay).focus();
  };

  const form = element(
    "form",
    {
      method: "dialog",
      onsubmit: (event) => {
        event.preventDefault();
        store();
      },
    },
    element("h2", { text: "Store this run" }),
    element("p", { class: "muted", text: `${seconds(frames)}, ${ending}.` }),
    element("label", {}, "Name ", field),
    status,
    div(
      "bar",
      element("button", { type: "submit", class: "primary", text: "Store" }),
      actionButton("Cancel", () => dialog.close()),
    ),
  );
  dialog.append(form);
  document.body.append(dialog);
  dialog.showModal();
  field.select();
  return new Promise((resolve) =>
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(null);
    }),
  );
}
