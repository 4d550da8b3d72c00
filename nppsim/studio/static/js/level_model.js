// Model of the level that is being edited: states, operations on them, and the undo history.  Independent of the page.
//
// A state is an immutable draft: {title, tiles: Uint8Array(23 * 42), spawn: [x, y] | null,
// entities: [{kind, x, y, orientation, mode, switch?}]}.  Operations return a new state, or the same one if nothing
// changes.  Positions of entities are in steps of 6 px from the outer corner of the border; tiles are (column, row)
// without the border.

import { COLUMNS, DRONE_MODES, KINDS, NINJA, ROWS, STEPS_PER_TILE, STEPS_X, STEPS_Y, nameOf } from "./kinds.js";

const UNDO_DEPTH = 500;
export const TURN_NAMES = ["right", "down-right", "down", "down-left", "left", "up-left", "up", "up-right"];
const CORNERS = ["top left", "top right", "bottom right", "bottom left"];
const SIDES = ["upper", "right", "lower", "left"];
export const TILE_NAMES = [
  "open",
  "solid",
  ...SIDES.map((side) => `${side} half`),
  ...CORNERS.map((corner) => `slope, solid ${corner}`),
  ...CORNERS.map((corner) => `quarter disc, solid ${corner}`),
  ...CORNERS.map((corner) => `hollow, solid ${corner}`),
  ...CORNERS.map((corner) => `gentle wedge, ${corner}`),
  ...CORNERS.map((corner) => `gentle slope, solid ${corner}`),
  ...CORNERS.map((corner) => `steep wedge, ${corner}`),
  ...CORNERS.map((corner) => `steep slope, solid ${corner}`),
  ...["top", "right", "bottom", "left"].map((side) => `single face, ${side}`),
];

// ---------------------------------------------------------------------------------------------------------------------
// States

export function emptyState() {
  return { title: "", tiles: new Uint8Array(ROWS * COLUMNS), spawn: null, entities: [] };
}

export function stateOf(draft) {
  return {
    title: draft.title,
    tiles: Uint8Array.from(draft.tiles.flat()),
    spawn: draft.spawn && [...draft.spawn],
    entities: draft.entities.map((entity) => ({ ...entity })),
  };
}

export function draftOf(state) {
  const tiles = Array.from({ length: ROWS }, (_, row) =>
    Array.from(state.tiles.subarray(row * COLUMNS, (row + 1) * COLUMNS)),
  );
  return { title: state.title, tiles, spawn: state.spawn, entities: state.entities };
}

export function same(a, b) {
  return a === b || JSON.stringify(draftOf(a)) === JSON.stringify(draftOf(b));
}

// ---------------------------------------------------------------------------------------------------------------------
// Tiles

export const isInside = (column, row) => column >= 0 && column < COLUMNS && row >= 0 && row < ROWS;
export const tileAt = (state, column, row) => (isInside(column, row) ? state.tiles[row * COLUMNS + column] : 1);

function withTiles(state, change) {
  const tiles = state.tiles.slice();
  change(tiles);
  return tiles.every((tile, i) => tile === state.tiles[i]) ? state : { ...state, tiles };
}

// Set the tiles along a line, so that a fast stroke has no gaps.
export function drawLine(state, from, to, tile) {
  const steps = Math.max(Math.abs(to[0] - from[0]), Math.abs(to[1] - from[1]), 1);
  return withTiles(state, (tiles) => {
    for (let i = 0; i <= steps; i++) {
      const column = Math.round(from[0] + ((to[0] - from[0]) * i) / steps);
      const row = Math.round(from[1] + ((to[1] - from[1]) * i) / steps);
      if (isInside(column, row)) tiles[row * COLUMNS + column] = tile;
    }
  });
}

export function fillRegion(state, region, tile) {
  return withTiles(state, (tiles) => {
    for (const [column, row] of cellsOf(region)) tiles[row * COLUMNS + column] = tile;
  });
}

// Set all equal tiles that are connected with this one by their sides.
export function flood(state, column, row, tile) {
  if (!isInside(column, row)) return state;
  const before = tileAt(state, column, row);
  if (before === tile) return state;
  return withTiles(state, (tiles) => {
    const open = [[column, row]];
    for (let next = open.pop(); next; next = open.pop()) {
      const [c, r] = next;
      if (!isInside(c, r) || tiles[r * COLUMNS + c] !== before) continue;
      tiles[r * COLUMNS + c] = tile;
      open.push([c - 1, r], [c + 1, r], [c, r - 1], [c, r + 1]);
    }
  });
}

// ---------------------------------------------------------------------------------------------------------------------
// Entities.  A part is a selectable object: {index, part: "body" | "switch"}, or {index: -1, part: "spawn"}.

/** @type {(at: number[]) => number[]} */
export function clampPlace([x, y]) {
  return [Math.min(Math.max(Math.round(x), 0), STEPS_X), Math.min(Math.max(Math.round(y), 0), STEPS_Y)];
}

// Add an entity, or move the spawn.  An entity with a switch needs the position of the switch.
export function place(state, entity) {
  if (entity.kind === NINJA) return { ...state, spawn: clampPlace([entity.x, entity.y]) };
  const [x, y] = clampPlace([entity.x, entity.y]);
  const made = { kind: entity.kind, x, y, orientation: entity.orientation ?? 0, mode: entity.mode ?? 0 };
  if (KINDS.get(entity.kind)?.switch) made.switch = clampPlace(entity.switch);
  return { ...state, entities: inOrder([...state.entities, made]) };
}

// Sort by kind, as the game does; entities of one kind keep their order.
function inOrder(entities) {
  return [...entities].sort((a, b) => a.kind - b.kind);
}

export function placeOf(state, { index, part }) {
  if (part === "spawn") return state.spawn;
  const entity = state.entities[index];
  return part === "switch" ? entity.switch : [entity.x, entity.y];
}

export function movePart(state, { index, part }, to) {
  const [x, y] = clampPlace(to);
  const now = placeOf(state, { index, part });
  if (now[0] === x && now[1] === y) return state;
  if (part === "spawn") return { ...state, spawn: [x, y] };
  return changeEntity(state, index, part === "switch" ? { switch: [x, y] } : { x, y });
}

export function changeEntity(state, index, values) {
  const entities = state.entities.slice();
  entities[index] = { ...entities[index], ...values };
  return { ...state, entities };
}

export function removePart(state, { index, part }) {
  if (part === "spawn") return { ...state, spawn: null };
  return { ...state, entities: state.entities.filter((_, i) => i !== index) };
}

export function partsOf(state) {
  const parts = state.spawn ? [{ index: -1, part: "spawn" }] : [];
  state.entities.forEach((entity, index) => {
    parts.push({ index, part: "body" });
    if (entity.switch) parts.push({ index, part: "switch" });
  });
  return parts;
}

/** Return the nearest part within `reach` steps of a position (the topmost of equally near ones), or null.
 *  @type {(state: any, at: number[], reach: number) => any} */
export function partAt(state, [x, y], reach) {
  let [best, least] = [/** @type {any} */ (null), reach];
  for (const part of partsOf(state)) {
    const [px, py] = placeOf(state, part);
    const distance = Math.hypot(px - x, py - y);
    if (distance <= least) [best, least] = [part, distance];
  }
  return best;
}

export function describe(state, part) {
  if (part.part === "spawn") return "spawn";
  const name = nameOf(state.entities[part.index].kind);
  return part.part === "switch" ? `switch of ${name}` : name;
}

// ---------------------------------------------------------------------------------------------------------------------
// Regions of tiles, {column, row, width, height}, and clips, copies of their content

export function regionBetween(a, b) {
  const column = Math.max(Math.min(a[0], b[0]), 0),
    row = Math.max(Math.min(a[1], b[1]), 0);
  return {
    column,
    row,
    width: Math.min(Math.max(a[0], b[0]), COLUMNS - 1) - column + 1,
    height: Math.min(Math.max(a[1], b[1]), ROWS - 1) - row + 1,
  };
}

function* cellsOf({ column, row, width, height }) {
  for (let r = row; r < row + height; r++) {
    for (let c = column; c < column + width; c++) if (isInside(c, r)) yield [c, r];
  }
}

// Return the edges of a region in steps: [left, top, right, bottom).
function stepsOf({ column, row, width, height }) {
  const [left, top] = [STEPS_PER_TILE * (column + 1), STEPS_PER_TILE * (row + 1)];
  return [left, top, left + STEPS_PER_TILE * width, top + STEPS_PER_TILE * height];
}

function isIn(region, x, y) {
  const [left, top, right, bottom] = stepsOf(region);
  return x >= left && x < right && y >= top && y < bottom;
}

// Copy a region.  An entity inside it includes its switch, even one outside.  Positions are relative to the region's
// corner.
export function copy(state, region) {
  const [left, top] = stepsOf(region);
  const entities = state.entities
    .filter((entity) => isIn(region, entity.x, entity.y))
    .map((entity) => moved(entity, -left, -top));
  return {
    width: region.width,
    height: region.height,
    tiles: [...cellsOf(region)].map(([c, r]) => tileAt(state, c, r)),
    entities,
  };
}

function moved(entity, dx, dy) {
  const there = { ...entity, x: entity.x + dx, y: entity.y + dy };
  if (entity.switch) there.switch = [entity.switch[0] + dx, entity.switch[1] + dy];
  return there;
}

// Open all tiles of a region and remove its entities.
export function clear(state, region) {
  const entities = state.entities.filter((entity) => !isIn(region, entity.x, entity.y));
  const next = fillRegion(state, region, 0);
  return entities.length === state.entities.length ? next : { ...next, entities };
}

// Replace the content of a region by a clip, which is cut off at the edge of the stage.
export function paste(state, clip, column, row) {
  const region = { column, row, width: clip.width, height: clip.height };
  const [left, top] = stepsOf(region);
  const next = withTiles(state, (tiles) => {
    clip.tiles.forEach((tile, i) => {
      const c = column + (i % clip.width),
        r = row + Math.floor(i / clip.width);
      if (isInside(c, r)) tiles[r * COLUMNS + c] = tile;
    });
  });
  const arriving = clip.entities.map((entity) => moved(entity, left, top));
  const fitting = arriving.filter(({ x, y }) => x >= 0 && x <= STEPS_X && y >= 0 && y <= STEPS_Y);
  for (const entity of fitting) if (entity.switch) entity.switch = clampPlace(entity.switch);
  const staying = next.entities.filter((entity) => !isIn(region, entity.x, entity.y));
  return { ...next, entities: inOrder([...staying, ...fitting]) };
}

// ---------------------------------------------------------------------------------------------------------------------
// Horizontal mirror images, as in nppsim.levels.level.mirror

export function mirroredTile(tile) {
  if (tile >= 6 && tile < 34) return tile ^ 1;
  return { 3: 5, 5: 3, 35: 37, 37: 35 }[tile] ?? tile;
}

function mirroredEntity(entity, width) {
  const kind = KINDS.get(entity.kind);
  const there = { ...entity, x: width - entity.x };
  if (kind?.turns) there.orientation = (4 - entity.orientation + 8) % 8;
  if (kind?.modes === DRONE_MODES) there.mode = entity.mode ^ 1;
  if (entity.switch) there.switch = [width - entity.switch[0], entity.switch[1]];
  return there;
}

export function mirrorLevel(state) {
  return {
    ...state,
    tiles: mirroredTiles(state.tiles, COLUMNS),
    spawn: state.spawn && [STEPS_X - state.spawn[0], state.spawn[1]],
    entities: state.entities.map((entity) => mirroredEntity(entity, STEPS_X)),
  };
}

function mirrorClip(clip) {
  const width = STEPS_PER_TILE * clip.width;
  return {
    ...clip,
    tiles: mirroredTiles(clip.tiles, clip.width),
    entities: clip.entities.map((entity) => mirroredEntity(entity, width)),
  };
}

function mirroredTiles(tiles, width) {
  return tiles.map((_, i) => mirroredTile(tiles[i - (i % width) + width - 1 - (i % width)]));
}

export function mirrorRegion(state, region) {
  const next = paste(clear(state, region), mirrorClip(copy(state, region)), region.column, region.row);
  if (!state.spawn || !isIn(region, ...state.spawn)) return next;
  const [left, , right] = stepsOf(region);
  return { ...next, spawn: [left + right - state.spawn[0], state.spawn[1]] };
}

// ---------------------------------------------------------------------------------------------------------------------
// Undo history of states.  All changes of a stroke (begin ... end) are undone in one step.

export class History extends EventTarget {
  #past = [];
  #future = [];
  #stroke = null; // state before the current stroke

  constructor(state) {
    super();
    this.state = state;
    this.saved = state; // last loaded or saved state
  }

  get isSaved() {
    return same(this.saved, this.state);
  }
  get canUndo() {
    return this.#past.length > 0;
  }
  get canRedo() {
    return this.#future.length > 0;
  }

  begin() {
    this.#stroke ??= this.state;
  }

  end() {
    const before = this.#stroke;
    this.#stroke = null;
    if (before !== null && before !== this.state) this.#record(before);
  }

  // Change to a new state; outside of a stroke, this is one undo step.
  apply(next) {
    if (next === this.state) return;
    const before = this.state;
    this.state = next;
    if (this.#stroke === null) this.#record(before);
    else this.#changed();
  }

  #record(before) {
    this.#past.push(before);
    if (this.#past.length > UNDO_DEPTH) this.#past.shift();
    this.#future = [];
    this.#changed();
  }

  undo() {
    this.end();
    this.#step(this.#past, this.#future);
  }
  redo() {
    this.end();
    this.#step(this.#future, this.#past);
  }

  #step(from, to) {
    if (!from.length) return;
    to.push(this.state);
    this.state = from.pop();
    this.#changed();
  }

  load(state) {
    [this.#past, this.#future, this.#stroke] = [[], [], null];
    this.state = this.saved = state;
    this.#changed();
  }

  markSaved() {
    this.saved = this.state;
    this.#changed();
  }

  #changed() {
    this.dispatchEvent(new Event("change"));
  }
}
