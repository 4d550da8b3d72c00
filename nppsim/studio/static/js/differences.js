/* Where two runs of a level diverge, and the frames gained along the path to the exit (nppsim/replays/diff.py). */

import { MAX_PATH, followPath } from "../../../wasm/path_lengths.js";

const APART_PX = 1; // distance from which positions differ
const SECTIONS = 10; // of the path

/** Compare the inputs of two runs.  level: level document.  Returns the fields of RunDifference that the page shows. */
export function difference(level, ...inputs) {
  const [a, b] = inputs.map((one) => followPath(level.newGame(), one));
  const common = Math.min(a.frames, b.frames);
  const first = (differs) => Array.from({ length: common }, (_, k) => k).find(differs);
  const unequal = first((k) => inputs[0][k] !== inputs[1][k]) ?? (a.frames === b.frames ? null : common);
  const apart = first((k) => Math.hypot(a.points[k][0] - b.points[k][0], a.points[k][1] - b.points[k][1]) > APART_PX);
  const { length } = a;
  return {
    inputs_part: unequal === null ? null : unequal + 1,
    positions_part: apart === undefined ? null : apart + 1,
    marks: length < MAX_PATH ? Array.from({ length: SECTIONS }, (_, k) => mark(length, k + 1, a, b)) : [],
    total: a.won && b.won ? b.frames - a.frames : null,
  };
}

function mark(length, section, a, b) {
  const remaining = (length * (SECTIONS - section)) / SECTIONS;
  const [first, other] = [a, b].map(({ left }) => left.findIndex((one) => one <= remaining) + 1 || null);
  const lead = first === null || other === null ? null : other - first;
  return { remaining_px: remaining, frame_a: first, frame_b: other, lead };
}
