// Level document (documents.js) of a level that is being edited, for the Scene.

import { EXIT, EXIT_SWITCH, LOCKED_DOOR, REGULAR_DOOR, STEP, TRAP_DOOR, isLeftOut, nameOf } from "./kinds.js";
import { draftOf } from "./level_model.js";

const [ACTIVE, CLOSED] = [1, 16]; // bits of an entity's state
const [ARMED, DORMANT] = [0, 1]; // states of mines, from bit 1 on
const MINE = 1,
  TOGGLE_MINE = 21,
  DOOR_HALF = 12; // px
const MIDDLE = [528, 300];

// As in the simulator, an exit and its switch become two entities; another door has the position of its switch, and a
// line.
export function documentOf(state) {
  /** @type {any[][]} */
  const [entities, leftOut, looks] = [[], [], []];
  const add = (entity, bits) => {
    looks.push([bits, entity.x, entity.y]);
    return entities.push(entity) - 1;
  };
  for (const one of state.entities) {
    const entity = drawn(one);
    if (isLeftOut(one.kind)) {
      leftOut.push({ name: entity.kind, x: entity.x, y: entity.y });
      continue;
    }
    if (one.kind === EXIT) {
      const exit = add(entity, ACTIVE);
      const [x, y] = pixels(one.switch);
      entity.switch = add({ kind: "exit switch", type: EXIT_SWITCH, x, y, orientation: 0, mode: 0, exit }, ACTIVE);
    } else {
      add(entity, bitsOf(one.kind));
    }
  }
  const spawn = state.spawn ? pixels(state.spawn) : MIDDLE;
  const start = { ninja: [...spawn, 0, 0, 0, 0, -1, 0, 0], looks };
  return { tiles: draftOf(state).tiles, entities, left_out: leftOut, spawn, start };
}

export const pixels = ([x, y]) => [STEP * x, STEP * y];

function drawn({ kind, x, y, orientation, mode, switch: its }) {
  const entity = { kind: nameOf(kind), type: kind, x: STEP * x, y: STEP * y, orientation, mode };
  if ([REGULAR_DOOR, LOCKED_DOOR, TRAP_DOOR].includes(kind)) {
    entity.door = doorLine(entity);
    if (its) [entity.x, entity.y] = pixels(its);
  }
  return entity;
}

function doorLine({ x, y, orientation }) {
  return orientation % 4 === 0 ? [x, y - DOOR_HALF, x, y + DOOR_HALF] : [x - DOOR_HALF, y, x + DOOR_HALF, y];
}

function bitsOf(kind) {
  if (kind === MINE) return ACTIVE | (ARMED << 1);
  if (kind === TOGGLE_MINE) return ACTIVE | (DORMANT << 1);
  return kind === REGULAR_DOOR || kind === LOCKED_DOOR ? ACTIVE | CLOSED : ACTIVE;
}
