/* Changes of inputs for undo and redo, small enough to be stored: [frame, number of frames, base64 of their
 * replacement]. */

import { bytes, concatenated, text } from "./arrays.js";

/** Return the change that turns inputs into others. */
export function changeTo(inputs, others) {
  const common = Math.min(inputs.length, others.length);
  let [begin, end] = [0, 0];
  while (begin < common && inputs[begin] === others[begin]) begin++;
  while (end < common - begin && inputs[inputs.length - 1 - end] === others[others.length - 1 - end]) end++;
  return [begin, inputs.length - begin - end, text(others.subarray(begin, others.length - end))];
}

/** Return changed inputs. */
export function changed(inputs, [frame, count, replacement]) {
  return concatenated(Uint8Array, inputs.subarray(0, frame), bytes(replacement), inputs.subarray(frame + count));
}
