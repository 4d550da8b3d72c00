/* The stage and the kinds of entities, for the page (nppsim/levels/kinds.py). */

export const COLUMNS = 42;
export const ROWS = 23;
export const STEP = 6; // px
export const STEPS_PER_TILE = 4;
export const STEPS_X = STEPS_PER_TILE * (COLUMNS + 2); // size of the stage in steps
export const STEPS_Y = STEPS_PER_TILE * (ROWS + 2);

export const NINJA = 0;
export const GOLD = 2;
export const EXIT = 3;
export const EXIT_SWITCH = 4;
export const REGULAR_DOOR = 5;
export const LOCKED_DOOR = 6;
export const TRAP_DOOR = 8;
const UPWARD = [6, 7, 0, 1, 2, 3, 4, 5]; // all orientations, starting with up
const STRAIGHT = [0, 2, 4, 6];
const DOWNWARD = [2, 4, 6, 0];
export const DRONE_MODES = [
  "follows walls, clockwise",
  "follows walls, counter-clockwise",
  "wanders, clockwise",
  "wanders, counter-clockwise",
];

/** Kinds of entities.  turns: distinct orientations; modes: names of the modes; switch: type of its switch; leftOut:
 *  true for a kind that the simulator does not create.
 *  @typedef {{name: string, turns?: number[], modes?: string[], switch?: number, leftOut?: boolean}} Kind */
/** @type {Map<number, Kind>} */
export const KINDS = new Map([
  [NINJA, { name: "ninja" }],
  [EXIT, { name: "exit door", switch: EXIT_SWITCH }],
  [GOLD, { name: "gold" }],
  [1, { name: "mine" }],
  [21, { name: "toggle mine" }],
  [REGULAR_DOOR, { name: "regular door", turns: STRAIGHT }],
  [LOCKED_DOOR, { name: "locked door", turns: STRAIGHT, switch: 7 }],
  [TRAP_DOOR, { name: "trap door", turns: STRAIGHT, switch: 9 }],
  [10, { name: "launch pad", turns: UPWARD }],
  [11, { name: "one-way platform", turns: UPWARD }],
  [17, { name: "bounce block" }],
  [20, { name: "thwump", turns: DOWNWARD }],
  [28, { name: "shove thwump" }],
  [14, { name: "zap drone", turns: STRAIGHT, modes: DRONE_MODES }],
  [15, { name: "chaser drone", turns: STRAIGHT, modes: DRONE_MODES }],
  [12, { name: "chaingun drone", turns: STRAIGHT, modes: DRONE_MODES }],
  [13, { name: "laser drone", turns: STRAIGHT, modes: DRONE_MODES }],
  [26, { name: "mini drone", turns: STRAIGHT, modes: DRONE_MODES }],
  [16, { name: "floor guard" }],
  [25, { name: "death ball" }],
  [23, { name: "laser turret", turns: UPWARD, modes: ["clockwise", "counter-clockwise"] }],
  [22, { name: "evil ninja" }],
  [18, { name: "rocket turret" }],
  [19, { name: "gauss turret" }],
  [24, { name: "boost pad" }],
  [27, { name: "alternative death ball", leftOut: true }],
]);

/** Return whether the simulator leaves a kind out. */
export const isLeftOut = (kind) => KINDS.get(kind)?.leftOut ?? !KINDS.has(kind);
export const nameOf = (kind) => KINDS.get(kind)?.name ?? `unknown entity (type ${kind})`;
