/* The input byte of a frame, as in N++ replays. */

// Bits.
export const JUMP = 1;
export const RIGHT = 2;
export const LEFT = 4;
export const SELF_DESTRUCT = 8;

/** Inputs in the order of their display.  label: text of the key. */
export const INPUTS = [
  { action: "left", bit: LEFT, label: "←" },
  { action: "jump", bit: JUMP, label: "jump" },
  { action: "right", bit: RIGHT, label: "→" },
];
