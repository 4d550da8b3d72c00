/* Inputs as text (nppsim/replays/input_text.py): lines of a number of frames and the keys held in them.
 *
 *     # up the wall
 *     12
 *     30,R
 *      4,R,J
 *     ***
 *
 * Comments and breakpoints are markers of frames: {frame, note} and {frame, note: "***"}.
 */

import { JUMP, LEFT, RIGHT, SELF_DESTRUCT } from "./input_byte.js";

export const BREAKPOINT = "***";
const KEYS = { L: LEFT, R: RIGHT, J: JUMP, S: SELF_DESTRUCT };
const MOST_FRAMES = 100_000;
const LINE = /^(\d{1,9})((?:[\s,]+[LRJS])*)$/i;

/** Return the text of inputs with markers. */
export function toText(inputs, markers = []) {
  const lines = [];
  const marks = [...markers].sort((a, b) => a.frame - b.frame);
  const mark = (upTo) => {
    while (marks.length && marks[0].frame <= upTo) {
      const { note } = marks.shift();
      lines.push(note === BREAKPOINT ? BREAKPOINT : `# ${note}`);
    }
  };
  for (let start = 0; start < inputs.length;) {
    mark(start);
    const next = marks[0]?.frame ?? inputs.length;
    let end = start + 1;
    while (end < inputs.length && end < next && inputs[end] === inputs[start]) end++;
    const keys = Object.keys(KEYS).filter((letter) => inputs[start] & KEYS[letter]);
    lines.push([String(end - start).padStart(4), ...keys].join(","));
    start = end;
  }
  mark(Infinity);
  return `${lines.join("\n")}\n`;
}

/** Return {inputs: Uint8Array, markers} of a text; throws an error that names the line. */
export function fromText(text) {
  const runs = []; // [number of frames, input byte]
  const markers = [];
  let frames = 0;
  text.split(/\r?\n/).forEach((line, i) => {
    const [content, note] = [line.replace(/#.*/, ""), line.replace(/^[^#]*#?/, "")].map((part) => part.trim());
    if (note) markers.push({ frame: frames, note });
    if (content === BREAKPOINT) markers.push({ frame: frames, note: BREAKPOINT });
    if (content === "" || content === BREAKPOINT) return;
    const match = LINE.exec(content);
    if (!match)
      throw new Error(`Line ${i + 1} is “${content.slice(0, 40)}”; write frames and keys, such as 12,R,J.`);
    const held = Object.keys(KEYS).filter((letter) => match[2].toUpperCase().includes(letter));
    runs.push([Number(match[1]), held.reduce((byte, letter) => byte | KEYS[letter], 0)]);
    frames += Number(match[1]);
    if (frames > MOST_FRAMES) throw new Error(`Line ${i + 1}: more than ${MOST_FRAMES.toLocaleString("en")} frames.`);
  });
  const inputs = new Uint8Array(frames);
  runs.reduce((at, [count, byte]) => (inputs.fill(byte, at, at + count), at + count), 0);
  return { inputs, markers };
}
