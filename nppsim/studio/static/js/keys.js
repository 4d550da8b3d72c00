/* Panel that lists the key bindings and lets the user change them. */

import { ACTIONS, keyName } from "./controls.js";
import { actionButton, div, element } from "./elements.js";

/** Return the panel.  controls: function that returns the active Controls. */
export function keysPanel(controls) {
  const rows = element("dl", { class: "facts" });
  const fill = () =>
    rows.replaceChildren(
      ...Object.entries(ACTIONS).flatMap(([action, [what]]) => [
        element("dt", { text: what }),
        element("dd", {}, controls().bindings[action].map((code) => key(action, code)), adder(action)),
      ]),
    );
  const key = (action, code) =>
    element(
      "button",
      {
        type: "button",
        class: "quiet key",
        title: "remove this key",
        "aria-label": `${keyName(code)}: remove`,
        onclick: () => {
          controls().unbind(action, code);
          fill();
        },
      },
      element("kbd", { text: keyName(code) }),
    );
  const adder = (action) =>
    actionButton("+", (event) => listen(event.currentTarget, action), {
      class: "quiet key",
      title: "add a key",
      "aria-label": `${ACTIONS[action][0]}: add a key`,
    });
  const listen = (button, action) => {
    button.textContent = "press a key";
    const take = (event) => {
      event.preventDefault();
      event.stopImmediatePropagation();
      removeEventListener("keydown", take, true);
      controls().bind(action, event.code);
      fill();
    };
    addEventListener("keydown", take, true);
    button.addEventListener(
      "blur",
      () => {
        removeEventListener("keydown", take, true);
        button.textContent = "+";
      },
      { once: true },
    );
  };
  const reset = actionButton(
    "Reset",
    () => {
      controls().resetBindings();
      fill();
    },
    { class: "quiet" },
  );
  const details = element(
    "details",
    { ontoggle: () => details.open && fill() },
    element("summary", { text: "Show and change" }),
    rows,
    reset,
  );
  return div(
    "",
    element("p", {
      class: "small muted",
      text: "Arrows or A and D run; space, shift, ↑ or W jump; R restarts. A gamepad works too.",
    }),
    details,
  );
}
