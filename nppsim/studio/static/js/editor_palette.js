/* The editor's panels of tools, tiles and entities, and of the properties of the selected entity or the one to
 * place. */

import { drawIcon } from "./editor_canvas.js";
import { actionButton, div, element } from "./elements.js";
import { KINDS, STEPS_PER_TILE, STEPS_X, STEPS_Y, nameOf } from "./kinds.js";
import { TILE_NAMES, TURN_NAMES, describe, placeOf } from "./level_model.js";
import { coloursOf, onThemeChange } from "./pen.js";
import { NUM_TILES } from "./tiles.js";

const TOOLS = [
  ["select", "Select", "V", "Select and move entities, or select a region"],
  ["tile", "Draw", "B", "Draw tiles"],
  ["fill", "Fill", "F", "Fill all connected tiles that are equal"],
  ["entity", "Place", "A", "Place entities"],
  ["erase", "Erase", "E", "Remove entities, open tiles"],
  ["pick", "Pick", "I", "Pick up the entity or tile under the cursor"],
];
const ICON = 30; // CSS px

/** Fill a panel with tools and palettes; return a function that removes the listeners. */
export function showPalette(panel, editor) {
  const tools = TOOLS.map(([name, title, key, hint]) =>
    actionButton(title, () => editor.choose(name), {
      title: `${hint} (${key})`,
      "aria-label": `${title}: ${hint}`,
      "aria-keyshortcuts": key,
      "data-tool": name,
    }),
  );
  const tiles = Array.from({ length: NUM_TILES }, (_, tile) =>
    iconButton(`tile ${tile}: ${TILE_NAMES[tile]}`, { tile }, () => editor.chooseTile(tile)),
  );
  const entities = [...KINDS].map(([kind, { name, turns }]) =>
    iconButton(name, { entity: { kind, orientation: turns?.[0] ?? 0, mode: 0 } }, () => editor.chooseEntity(kind)),
  );
  const hand = element("p", { class: "small muted", id: "editor-hand" });
  panel.append(
    element("h2", { text: "Tools" }),
    element("div", { class: "bar tools", role: "group", "aria-label": "Tools" }, tools),
    hand,
    element("h3", { text: "Tiles" }),
    element("div", { class: "swatches", role: "group", "aria-label": "Tiles" }, tiles.map((one) => one.button)),
    element("h3", { text: "Entities" }),
    element("div", { class: "swatches", role: "group", "aria-label": "Entities" }, entities.map((one) => one.button)),
  );
  const paint = () => {
    const colours = coloursOf(panel);
    for (const { canvas, what } of [...tiles, ...entities]) drawIcon(canvas, colours, what);
  };
  const update = () => {
    for (const button of tools) button.setAttribute("aria-pressed", button.dataset.tool === editor.tool);
    const drawing = editor.tool === "tile" || editor.tool === "fill";
    for (const { button, what } of tiles) button.setAttribute("aria-pressed", drawing && what.tile === editor.tile);
    for (const { button, what } of entities)
      button.setAttribute("aria-pressed", editor.tool === "entity" && what.entity.kind === editor.entity.kind);
    hand.textContent = TOOLS.find(([name]) => name === editor.tool)?.[3] ?? "";
  };
  const endTheme = onThemeChange(paint);
  editor.addEventListener("change", update);
  requestAnimationFrame(paint);
  update();
  return () => {
    endTheme();
    editor.removeEventListener("change", update);
  };
}

function iconButton(label, what, onclick) {
  const canvas = element("canvas", { "data-size": ICON, "aria-hidden": "true" });
  return {
    canvas,
    what,
    button: element("button", { type: "button", class: "swatch", title: label, "aria-label": label, onclick }, canvas),
  };
}

/** Fill a panel with the properties of the selection or of the entity to place; return a function that removes the
 *  listeners. */
export function showProperties(panel, editor) {
  const heading = element("h2", { id: "editor-selected" });
  const x = number("x", STEPS_X, (value) => editor.set({ x: value }));
  const y = number("y", STEPS_Y, (value) => editor.set({ y: value }));
  const turns = choice("Orientation", (value) => turnTo(value));
  const modes = choice("Mode", (value) => changeTo(value));
  const remove = actionButton("✕", () => editor.remove(), {
    class: "danger icon",
    title: "Remove (Delete)",
    "aria-label": "Remove",
    "aria-keyshortcuts": "Delete",
  });
  const note = element("p", { class: "small muted" });
  panel.append(heading, div("bar", x.label, y.label, remove), div("bar", turns.label, modes.label), note);

  const chosen = () => (editor.part?.index >= 0 ? editor.state.entities[editor.part.index] : editor.entity);
  const turnTo = (value) =>
    editor.part?.index >= 0 ? editor.set({ orientation: value }) : editor.setEntity({ orientation: value });
  const changeTo = (value) =>
    editor.part?.index >= 0 ? editor.set({ mode: value }) : editor.setEntity({ mode: value });
  const update = () => {
    const { part, region } = editor;
    heading.textContent = part
      ? `Selected: ${describe(editor.state, part)}`
      : region
        ? `Selected: ${region.width} × ${region.height} tiles`
        : `Tool: ${describeTool(editor)}`;
    const isEntity = part ? part.part === "body" : editor.tool === "entity";
    const kind = isEntity ? (KINDS.get(chosen().kind) ?? null) : null;
    for (const one of [x, y]) one.label.hidden = !part;
    remove.hidden = !part;
    if (part) {
      const [px, py] = placeOf(editor.state, part);
      x.show(px);
      y.show(py);
    }
    turns.show(kind?.turns?.map((turn) => [turn, TURN_NAMES[turn]]), chosen().orientation);
    modes.show(kind?.modes?.map((mode, i) => [i, mode]), chosen().mode);
    note.textContent = noteOn(editor, kind);
  };
  editor.addEventListener("change", update);
  update();
  return () => editor.removeEventListener("change", update);
}

function describeTool(editor) {
  if (editor.tool === "entity") return nameOf(editor.entity.kind);
  return ["tile", "fill"].includes(editor.tool) ? `tile ${editor.tile}, ${TILE_NAMES[editor.tile]}` : editor.tool;
}

function noteOn(editor, kind) {
  if (editor.part) return "";
  if (editor.region) return "Copy, cut, paste, mirror, fill and remove act on the region.";
  if (editor.pending) return "Now place its switch; Escape cancels.";
  return editor.tool === "entity" && kind?.switch ? "First place the entity, then its switch." : "";
}

// An input field that shows a number of steps in tiles.
function number(name, most, set) {
  const input = element("input", {
    type: "number",
    step: 1 / STEPS_PER_TILE,
    min: 0,
    max: most / STEPS_PER_TILE,
    class: "coordinate",
    title: "in tiles from the corner of the border",
  });
  input.addEventListener("change", () => {
    const value = Math.round(input.valueAsNumber * STEPS_PER_TILE);
    if (Number.isFinite(value)) set(value);
  });
  const show = (value) => {
    if (document.activeElement !== input) input.value = value / STEPS_PER_TILE;
  };
  return { label: element("label", {}, name, input), show };
}

function choice(name, set) {
  const select = element("select", {});
  select.addEventListener("change", () => set(Number(select.value)));
  const label = element("label", {}, name, select);
  const show = (options, value) => {
    label.hidden = !options;
    if (!options) return;
    const known = options.some(([one]) => one === value) ? options : [...options, [value, `as in the file (${value})`]];
    select.replaceChildren(
      ...known.map(([one, text]) => element("option", { value: one, selected: one === value, text })),
    );
  };
  return { label, show };
}
