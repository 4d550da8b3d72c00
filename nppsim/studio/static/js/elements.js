/* Making elements: text is always text, never markup. */

/** An element with attributes (on...: a listener; class, text; booleans) and children: elements, texts, null. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "text") made.textContent = value;
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return made;
}

/** Frames as seconds, for people. */
export function seconds(frames) {
  return `${(frames / 60).toFixed(2)} s`;
}

/** What a level's support grade means: shown on cards and over stages; "exact" shows nothing. */
export const SUPPORT = { exact: "as in the game", modelled: "modelled", unsupported: "incomplete" };

/** A line that stays above a stage where the level is not played as in the game; null elsewhere. */
export function supportBanner({ support }) {
  if (!support.notes.length) return null;
  return element("p", { class: `support ${support.grade}`, role: "note" }, element("b", { text: `${SUPPORT[support.grade]}: ` }), support.notes.join("; "));
}

/** Whether what is typed belongs to a field or an open dialog, not to the game.  target: of a key event. */
export function takesKeys(target) {
  const field = target instanceof Element && target.matches("input:not([type=range], [type=checkbox], [type=radio]), select, textarea");
  return field || document.querySelector("dialog[open]") !== null;
}
