/* The input byte of a frame, as in N++ replays. */

export const [JUMP, RIGHT, LEFT] = [1, 2, 4]; // bits

/** Inputs in the order of their display.  label: text of the key. */
export const INPUTS = [
  { action: "left", bit: LEFT, label: "←" },
  { action: "jump", bit: JUMP, label: "jump" },
  { action: "right", bit: RIGHT, label: "→" },
];
