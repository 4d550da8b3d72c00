/* Functions that create HTML elements and texts.  Strings are always inserted as text, never as markup. */

/** Create an element.  attributes: "text", listeners ("on..."), others (null and false are left out); children:
 *  elements, strings, or null and false, which are left out. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "text") made.textContent = value;
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

/** Create a div.  name: its class, or "". */
export const div = (name, ...children) => element("div", { class: name || null }, ...children);

/** Create a button. */
export const actionButton = (text, onclick, attributes = {}, ...children) =>
  element("button", { type: "button", text, onclick, ...attributes }, ...children);

/** Create a link that looks like a button. */
export const linkButton = (text, href, attributes = {}) =>
  element("a", { class: "button", href, text, ...attributes });

/** Create a select element.  choices: [value, text] of each option.  choose: called with the chosen value. */
export function selectOf(label, choices, choose = (_) => {}, chosen = choices[0]?.[0]) {
  const options = choices.map(([value, text]) => element("option", { value, text, selected: value === chosen }));
  const made = element("select", { "aria-label": label, onchange: () => choose(made.value) }, options);
  return made;
}

/** Return the element of the page with an id. */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no element #${id}`);
  return found;
}

/** Create a panel with an optional heading. */
export function panel(title, ...content) {
  return element("section", { class: "panel" }, title ? element("h2", { text: title }) : null, ...content);
}

const RESEARCH = "nppsim.research";

/** Create a panel for researchers, closed until it is opened, then open in all views.  title: its heading. */
export function researchPanel(title, ...content) {
  const made = element(
    "details",
    {
      class: "panel research",
      open: localStorage.getItem(RESEARCH) === "open",
      ontoggle: () => localStorage.setItem(RESEARCH, made.open ? "open" : "closed"),
    },
    element("summary", { text: title }),
    ...content,
  );
  return made;
}

/** Create a table.  headings: texts of its first row.  bodies: tbody elements. */
export function table(headings, attributes, ...bodies) {
  const heads = headings.map((text) => element("th", { scope: "col", text }));
  return element("table", attributes, element("thead", {}, element("tr", {}, heads)), ...bodies);
}

/** Create a row of a table.  cells: texts, numbers and elements. */
export const tableRow = (...cells) =>
  element("tr", {}, cells.map((cell) => (cell instanceof HTMLTableCellElement ? cell : element("td", {}, cell))));

/** Create a list of names and figures.  pairs: [name, text or elements]; null is left out. */
export const factList = (...pairs) =>
  element(
    "dl",
    { class: "facts" },
    pairs.filter(Boolean).map(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]),
  );

/** Create a check box with a label.  change: called with whether it is checked. */
export const checkBox = (checked, change, attributes, ...label) =>
  element(
    "label",
    attributes,
    element("input", { type: "checkbox", checked, onchange: ({ currentTarget }) => change(currentTarget.checked) }),
    label,
  );

/** Create a mark in the colour of a run. */
export function dot(colour, attributes = {}) {
  const made = element("i", attributes);
  made.style.background = colour;
  return made;
}

export const SUPPORT = { exact: "as in the game", modelled: "modelled", unsupported: "incomplete" };

/** Return a line on the differences from the game, to be shown above the stage; null for a level without any. */
export function supportBanner({ support }) {
  if (!support.notes.length) return null;
  return element(
    "p",
    { class: `support ${support.grade}`, role: "note" },
    element("b", { text: `${SUPPORT[support.grade]}: ` }),
    support.notes.join("; "),
  );
}

/** Return whether a key event belongs to an input field or an open dialog.  target: target of the event. */
export function takesKeys(target) {
  const field =
    target instanceof Element &&
    target.matches("input:not([type=range], [type=checkbox], [type=radio]), select, textarea");
  return field || document.querySelector("dialog[open]") !== null;
}

/**
 * Show a modal dialog; resolves with the value of the pressed button, or "" for Escape.  Buttons without a value close
 * the dialog even if a field is invalid; Enter in a field presses the first button with a value.
 * @param {string} title
 * @param {any} contents
 * @param {any} buttons - made by ``choice``
 */
export function ask(title, contents, buttons) {
  return new Promise((resolve) => {
    const form = element(
      "form",
      { method: "dialog" },
      element("h2", { text: title }),
      contents,
      div("bar", element("span", { class: "spacer" }), buttons),
    );
    const dialog = element("dialog", { "aria-label": title }, form);
    for (const one of [buttons].flat().filter(({ value }) => value === "")) {
      one.type = "button";
      one.addEventListener("click", () => dialog.close(""));
    }
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue);
    });
    document.body.append(dialog);
    dialog.showModal();
    dialog.scrollTop = 0; // the focused button is at the end of the dialog
  });
}

/** Create a button of a dialog. */
export const choice = (value, text, kind) => element("button", { value, text, class: kind });

/** Ask for the confirmation of an action that cannot be undone.  yes: text of the button that confirms. */
export async function confirmed(title, text, yes) {
  const answers = [choice("", "Keep it"), choice("yes", yes, "danger")];
  return (await ask(title, element("p", { text }), answers)) === "yes";
}
