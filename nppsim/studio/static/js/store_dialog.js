/* Dialog that stores a run under a name, then offers to download it or to add it to the demonstrations. */

import { download, post } from "./api.js";
import { element, seconds } from "./elements.js";

/** Show the dialog for the run of a LiveGame; resolves when it is closed. */
export function storeDialog(game) {
  const { o, f } = game.frame;
  const field = element("input", {
    type: "text",
    maxlength: 100,
    value: `my run, ${seconds(f)}`,
    "aria-label": "Name",
    autocomplete: "off",
  });
  const status = element("p", { class: "small", role: "status" });
  const close = element("button", { type: "button", text: "Close", onclick: () => dialog.close() });
  const dialog = element("dialog", { class: "store-dialog", "aria-label": "Store this run" });
  const ending = { won: "finishes the level", died: "ends in death", running: "stops before the exit" }[o];

  const store = async () => {
    let stored;
    try {
      stored = await game.store(field.value.trim() || "my run");
    } catch (error) {
      status.textContent = error.message;
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
    const demonstrate = async (button) => {
      const { added, demonstrations: d } = await post(`recordings/${stored.number}/demonstration`);
      button.disabled = true;
      status.className = "small good";
      const how = added.retimed
        ? " Training shifts its key presses slightly, as agents need them " +
          `(${added.deviation_px} px off on average; it still finishes).`
        : "";
      const missing = d.missing ? `${d.missing} more make a data set` : "enough for a data set";
      status.textContent = `Added: ${added.file}.${how} ${d.recordings} of ${d.wanted} recordings; ${missing}.`;
    };
    const demonstration =
      o === "won" ? act("Add to my demonstrations", demonstrate, { class: "primary", id: "demonstrate" }) : null;
    const replay = act("Replay file", () => download(`recordings/${stored.number}/file?format=compact`), {
      title: "to watch here, or to train on",
    });
    dialog.replaceChildren(
      element("h2", { text: stored.label }),
      element("p", {
        class: "muted",
        text: `Stored until the studio ends: ${seconds(stored.frames)}, ${ending}. To save it:`,
      }),
      element(
        "div",
        { class: "bar" },
        demonstration,
        replay,
        act("Attract file", () => download(`recordings/${stored.number}/file?format=attract`), {
          title: "to watch in the real game",
        }),
      ),
      status,
      element("div", { class: "bar" }, element("span", { class: "spacer" }), close),
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
    element("p", { class: "muted", text: `${seconds(f)}, ${ending}.` }),
    element("label", {}, "Name ", field),
    status,
    element(
      "div",
      { class: "bar" },
      element("button", { type: "submit", class: "primary", text: "Store" }),
      element("button", { type: "button", text: "Cancel", onclick: () => dialog.close() }),
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
