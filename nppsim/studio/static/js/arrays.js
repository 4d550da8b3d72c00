/* Typed arrays. */

/** Concatenate typed arrays into one of the type Kind. */
export function concatenated(Kind, ...parts) {
  const whole = new Kind(parts.reduce((sum, { length }) => sum + length, 0));
  parts.reduce((at, part) => (whole.set(part, at), at + part.length), 0);
  return whole;
}
