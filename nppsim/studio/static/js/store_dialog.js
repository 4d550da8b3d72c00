/* Dialog that stores a run under a name, then offers to add it to the demonstrations or to export it. */

import { features, post } from "./api.js";
import { bytes, text as base64 } from "./arrays.js";
import { seconds } from "./clock.js";
import { actionButton, ask, choice, div, element } from "./elements.js";
import { exportFiles, saveAs } from "./export_dialog.js";
import { addRun } from "./store.js";

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
    autocomplete: "off",
    onfocus: () => field.select(),
  });
  const status = element("p", { class: "small", role: "status" });
  const show = (kind, ...words) => {
    status.className = `small ${kind}`;
    status.replaceChildren(...words);
  };
  const ending = { won: "finishes the level", died: "ends in death", running: "stops before the exit" }[outcome];
  const form = [
    element("p", { class: "muted", text: `${seconds(frames)}, ${ending}.` }),
    element("label", { class: "wide-field" }, "Name", field),
    status,
  ];
  /** @type {import("./store.js").StoredRun | null} */
  let stored = null;
  while (!stored) {
    const buttons = [choice("store", "Store", "primary"), choice("", "Cancel")];
    if ((await ask("Store this run", form, buttons)) !== "store") return;
    try {
      stored = await addRun(recording, field.value.trim() || "my run");
    } catch (error) {
      const run = { map: level.map, outcome, inputs: Uint8Array.from(recording.inputs) };
      const save = () => saveAs(".replay", run, level.name);
      show("bad", error.message, " ", actionButton("Save the run as a replay file", save));
    }
  }
  const run = stored;
  const add = async (button) => {
    const { added, demonstrations: d } = await demonstrate(run);
    button.disabled = true;
    const how = added.retimed
      ? " Training shifts its key presses slightly, as agents need them " +
        `(${added.deviation_px} px off on average; it still finishes).`
      : "";
    show("good", `Added: ${added.file}.${how} ${d.recordings} of ${d.wanted} recordings for a training.`);
  };
  const adding = ({ currentTarget }) => add(currentTarget).catch((error) => show("bad", error.message));
  show("");
  const contents = [
    element("p", { class: "muted", text: `Stored in this browser: ${seconds(frames)}, ${ending}.` }),
    writes && outcome === "won"
      ? div("bar", actionButton("Add to my demonstrations", adding, { class: "primary", id: "demonstrate" }))
      : null,
    status,
    element("h3", { text: "Export to the game" }),
    exportFiles(run, level.name),
  ];
  await ask(run.label, contents, choice("", "Close"));
}
