// State of the editor (tool, selection, cursor) and its commands, independent of the page.
// Mouse, touch and keyboard use the same commands, so each of them can do everything.

import { COLUMNS, KINDS, NINJA, ROWS, STEPS_PER_TILE, STEPS_X, STEPS_Y, nameOf } from "./kinds.js";
import {
  TILE_NAMES,
  TURN_NAMES,
  changeEntity,
  clampPlace,
  clear,
  copy,
  describe,
  drawLine,
  fillRegion,
  flood,
  isInside,
  mirrorLevel,
  mirrorRegion,
  movePart,
  partAt,
  partsOf,
  paste,
  place,
  placeOf,
  regionBetween,
  removePart,
  tileAt,
} from "./level_model.js";
import { NUM_TILES } from "./tiles.js";

const REACH = 2; // distance in steps within which a part is selected
const BY_TILES = new Set(["tile", "fill", "erase", "pick"]); // tools whose cursor moves by tiles

/** @type {(at: number[]) => number[]} */
export const tileOf = ([x, y]) => [Math.floor(x / STEPS_PER_TILE) - 1, Math.floor(y / STEPS_PER_TILE) - 1];
/** @type {(tile: number[]) => number[]} */
const middleOf = ([column, row]) => [STEPS_PER_TILE * (column + 1) + 2, STEPS_PER_TILE * (row + 1) + 2];

export class Editor extends EventTarget {
  /** @type {any} */
  pressed; // current action: {from, last, erasing, part?, dragging?}

  constructor(history) {
    super();
    this.history = history;
    this.tool = "tile";
    this.tile = 1;
    this.entity = { kind: NINJA, orientation: 0, mode: 0 };
    this.clip = null; // last copied region
    this.cursor = middleOf([1, 1]);
    this.reset();
    history.addEventListener("change", () => this.#settle());
  }

  // Clear the selection and the current action.
  reset() {
    this.part = null; // selected part
    this.region = null; // selected region
    this.pending = null; // entity whose switch has not been placed yet
    this.pressed = null;
  }

  get state() {
    return this.history.state;
  }

  // Deselect a part that no longer exists, for example after an undo.
  #settle() {
    const { part, state } = this;
    const gone =
      part &&
      (part.part === "spawn"
        ? !state.spawn
        : !state.entities[part.index] || (part.part === "switch" && !state.entities[part.index].switch));
    if (gone) this.part = null;
    this.#changed();
  }

  #changed() {
    this.dispatchEvent(new Event("change"));
  }

  // Announce a text to screen readers.
  #announce(text) {
    this.dispatchEvent(new CustomEvent("announce", { detail: text }));
  }

  // -------------------------------------------------------------------------------------------------------------------
  // Tools, and the tile or entity to draw

  choose(tool) {
    this.cancel();
    this.tool = tool;
    if (tool !== "select") [this.part, this.region] = [null, null];
    if (BY_TILES.has(tool)) this.cursor = this.#inStage(middleOf(tileOf(this.cursor)));
    this.#announce(`${tool} tool`);
    this.#changed();
  }

  chooseTile(tile) {
    this.tile = (tile + NUM_TILES) % NUM_TILES;
    if (this.tool !== "fill") this.choose("tile");
    this.#announce(`tile ${this.tile}: ${TILE_NAMES[this.tile]}`);
    this.#changed();
  }

  chooseEntity(kind, { orientation = KINDS.get(kind)?.turns?.[0] ?? 0, mode = 0 } = {}) {
    this.entity = { kind, orientation, mode };
    this.choose("entity");
    this.#announce(this.#inWords(this.entity));
  }

  // Change the orientation or mode of the entity to place.
  setEntity(values) {
    this.entity = { ...this.entity, ...values };
    if (this.pending) Object.assign(this.pending, values);
    this.#changed();
  }

  // Select the next orientation or mode (by 1 or -1) of the selected entity, or else of the entity to place.
  turn(by) {
    this.#next("orientation", (kind) => kind.turns, by);
  }
  change(by) {
    this.#next("mode", (kind) => kind.modes?.map((_, i) => i), by);
  }

  #next(what, choices, by) {
    const chosen = this.part?.index >= 0 ? this.state.entities[this.part.index] : this.entity;
    const values = choices(KINDS.get(chosen.kind) ?? {});
    if (!values) return this.#announce(`a ${nameOf(chosen.kind)} has no ${what}`);
    const next = values[(values.indexOf(chosen[what]) + by + values.length) % values.length];
    if (chosen === this.entity) this.setEntity({ [what]: next });
    else this.history.apply(changeEntity(this.state, this.part.index, { [what]: next }));
    this.#announce(this.#inWords({ ...chosen, [what]: next }));
  }

  #inWords({ kind, orientation, mode }) {
    const { turns, modes } = KINDS.get(kind) ?? {};
    return [nameOf(kind), turns && `pointing ${TURN_NAMES[orientation]}`, modes?.[mode]].filter(Boolean).join(", ");
  }

  // -------------------------------------------------------------------------------------------------------------------
  // Press, move, release.  Positions are in steps, not rounded.

  press(at, { erasing = this.tool === "erase" } = {}) {
    this.#goTo(at);
    this.history.begin();
    const pressed = { from: this.cursor, last: tileOf(this.cursor), erasing };
    this.pressed = pressed;
    const tile = tileOf(this.cursor);
    if (erasing) this.#erase(pressed);
    else if (this.tool === "tile") this.#draw(pressed, tile, this.tile);
    else if (this.tool === "fill") this.#fill(tile);
    else if (this.tool === "pick") this.pick(at);
    else if (this.tool === "entity") this.#place();
    else this.#select(pressed, at);
    this.#changed();
  }

  move(at) {
    this.#goTo(at);
    const { pressed } = this;
    const tile = tileOf(this.cursor);
    if (pressed?.erasing) this.#draw(pressed, tile, 0);
    else if (pressed && this.tool === "tile") this.#draw(pressed, tile, this.tile);
    else if (pressed?.part) this.history.apply(movePart(this.state, pressed.part, this.cursor));
    else if (pressed && this.tool === "select" && (pressed.dragging || tile.join() !== pressed.last.join())) {
      pressed.dragging = true;
      this.region = regionBetween(pressed.last, tile);
    }
    if (pressed) this.#changed();
    else this.dispatchEvent(new Event("cursor")); // nothing but the cursor has moved
  }

  release() {
    if (!this.pressed) return;
    const { pressed } = this;
    this.pressed = null;
    this.history.end();
    if (pressed.dragging) this.#announce(`region of ${this.region.width} by ${this.region.height} tiles`);
    else if (pressed.part)
      this.#announce(`${describe(this.state, pressed.part)} at ${this.inTiles(placeOf(this.state, pressed.part))}`);
    this.#changed();
  }

  // Cancel the current action; without one, the selection.
  cancel() {
    if (this.pressed) {
      const { part, from } = this.pressed;
      if (part) this.history.apply(movePart(this.state, part, from));
      this.release();
    } else if (this.pending) {
      this.pending = null;
      this.#announce("not placed");
    } else {
      [this.part, this.region] = [null, null];
    }
    this.#changed();
  }

  #goTo(at) {
    this.cursor = this.#inStage(BY_TILES.has(this.tool) ? middleOf(tileOf(at)) : at);
  }

  /** @type {(at: number[]) => number[]} */
  #inStage([x, y]) {
    if (!BY_TILES.has(this.tool)) return clampPlace([x, y]);
    const [column, row] = tileOf([x, y]);
    return middleOf([Math.min(Math.max(column, 0), COLUMNS - 1), Math.min(Math.max(row, 0), ROWS - 1)]);
  }

  #draw(pressed, tile, id) {
    const from = pressed.last;
    pressed.last = tile;
    this.history.apply(drawLine(this.state, from, tile, id));
  }

  /** @type {(tile: number[]) => void} */
  #fill([column, row]) {
    this.history.apply(flood(this.state, column, row, this.tile));
  }

  // Erase the part at the cursor, or else the tile.
  #erase(pressed) {
    const part = partAt(this.state, this.cursor, REACH);
    if (part) {
      this.#announce(`${describe(this.state, part)} removed`);
      this.history.apply(removePart(this.state, part));
      this.pressed = this.part = null;
      this.history.end();
    } else {
      this.#draw(pressed, tileOf(this.cursor), 0);
    }
  }

  #place() {
    const [x, y] = this.cursor;
    const { kind } = this.entity;
    const needsSwitch = KINDS.get(kind)?.switch !== undefined;
    if (needsSwitch && !this.pending) {
      this.pending = { ...this.entity, x, y };
      this.#announce(`${nameOf(kind)} at ${this.inTiles([x, y])}; now place its switch`);
      return;
    }
    const there = this.state.entities.findIndex((one) => one.kind === kind && one.x === x && one.y === y);
    if (!needsSwitch && there >= 0) return; // it is there already
    this.history.apply(place(this.state, needsSwitch ? { ...this.pending, switch: [x, y] } : { ...this.entity, x, y }));
    this.#announce(`${needsSwitch ? "switch of " : ""}${nameOf(kind)} placed at ${this.inTiles([x, y])}`);
    this.pending = null;
  }

  // Select the part at the cursor; without one, begin a region.
  #select(pressed, at) {
    const part = partAt(this.state, at, REACH) ?? partAt(this.state, this.cursor, REACH);
    [this.part, this.region] = [part, null];
    if (!part) return;
    pressed.part = part;
    this.cursor = pressed.from = placeOf(this.state, part);
    this.#announce(`${describe(this.state, part)} selected`);
  }

  // Choose the entity or tile at a position for drawing.
  pick(at) {
    const part = partAt(this.state, at, REACH);
    if (part) {
      const entity = this.state.entities[part.index] ?? { kind: NINJA };
      if (KINDS.has(entity.kind)) this.chooseEntity(entity.kind, entity);
    } else {
      const [column, row] = tileOf(at);
      if (isInside(column, row)) this.chooseTile(tileAt(this.state, column, row));
    }
  }

  // -------------------------------------------------------------------------------------------------------------------
  // The cursor

  // Move the cursor by steps or tiles, depending on the tool; far: always by tiles.  A dragged part moves with it.
  step(dx, dy, far) {
    const by = far || BY_TILES.has(this.tool) ? STEPS_PER_TILE : 1;
    this.move([this.cursor[0] + by * dx, this.cursor[1] + by * dy]);
    if (!this.pressed) this.#announce(this.whatIsHere());
  }

  goTo(at) {
    this.#goTo(at);
    this.#changed();
  }

  whatIsHere() {
    const part = partAt(this.state, this.cursor, REACH);
    const [column, row] = tileOf(this.cursor);
    const tile = isInside(column, row)
      ? (TILE_NAMES[tileAt(this.state, column, row)] ?? "tile without geometry")
      : "border";
    return `${this.inTiles(this.cursor)}: ${part ? `${describe(this.state, part)}, ` : ""}${tile}`;
  }

  /** Format a position in tiles, as level texts do.
   *  @type {(at: number[]) => string} */
  inTiles([x, y]) {
    return `${x / STEPS_PER_TILE}, ${y / STEPS_PER_TILE}`;
  }

  // Select the next part (by 1 or -1).
  next(by) {
    const parts = partsOf(this.state);
    if (!parts.length) return this.#announce("there is nothing to select");
    const now = parts.findIndex((one) => one.index === this.part?.index && one.part === this.part?.part);
    if (this.tool !== "select") this.choose("select");
    const part = parts[now < 0 ? (by > 0 ? 0 : parts.length - 1) : (now + by + parts.length) % parts.length];
    [this.part, this.region] = [part, null];
    this.cursor = placeOf(this.state, part);
    this.#announce(`${describe(this.state, part)} at ${this.inTiles(this.cursor)} selected`);
    this.#changed();
  }

  // -------------------------------------------------------------------------------------------------------------------
  // Commands

  undo() {
    this.cancel();
    this.history.undo();
    this.#announce("undone");
  }
  redo() {
    this.cancel();
    this.history.redo();
    this.#announce("redone");
  }

  selectAll() {
    this.choose("select");
    [this.part, this.region] = [null, { column: 0, row: 0, width: COLUMNS, height: ROWS }];
    this.#changed();
  }

  // Remove the selection, or else the part or tile at the cursor.
  remove() {
    if (this.region) this.history.apply(clear(this.state, this.region));
    else {
      const part = this.part ?? partAt(this.state, this.cursor, REACH);
      if (part) this.history.apply(removePart(this.state, part));
      else this.#drawHere(0);
      this.part = null;
    }
    this.#announce("removed");
    this.#changed();
  }

  #drawHere(tile) {
    const here = tileOf(this.cursor);
    this.history.apply(drawLine(this.state, here, here, tile));
  }

  copy() {
    if (!this.region) return this.#announce("select a region first: with the select tool, press, move and release");
    this.clip = copy(this.state, this.region);
    this.#announce(`copied ${this.region.width} by ${this.region.height} tiles`);
    this.#changed();
  }

  cut() {
    this.copy();
    if (this.region) this.remove();
  }

  // Paste at the corner of the region, or else at the cursor's tile.
  paste() {
    if (!this.clip) return this.#announce("nothing has been copied");
    const [column, row] = this.region ? [this.region.column, this.region.row] : tileOf(this.cursor);
    this.history.apply(paste(this.state, this.clip, column, row));
    this.choose("select");
    this.region = regionBetween([column, row], [column + this.clip.width - 1, row + this.clip.height - 1]);
    this.#announce("pasted");
    this.#changed();
  }

  mirror() {
    if (this.pending) this.cancel();
    this.history.apply(this.region ? mirrorRegion(this.state, this.region) : mirrorLevel(this.state));
    if (this.part) this.cursor = placeOf(this.state, this.part);
    this.#announce(this.region ? "region mirrored" : "level mirrored");
  }

  // Fill the region with the current tile; without a region, fill the connected tiles at the cursor.
  fill() {
    if (this.region) this.history.apply(fillRegion(this.state, this.region, this.tile));
    else this.#fill(tileOf(this.cursor));
    this.#announce(`filled with ${TILE_NAMES[this.tile]}`);
  }

  // Change the selected part: x, y in steps, orientation, mode.
  set(values) {
    const { x, y, ...others } = values;
    const now = placeOf(this.state, this.part);
    let next = movePart(this.state, this.part, [x ?? now[0], y ?? now[1]]);
    if (Object.keys(others).length) next = changeEntity(next, this.part.index, others);
    this.history.apply(next);
  }
}

export const isOnStage = ([x, y]) => x >= 0 && x <= STEPS_X && y >= 0 && y <= STEPS_Y;
