/* Typed arrays, and points. */

/** Concatenate typed arrays into one of the type Kind. */
export function concatenated(Kind, ...parts) {
  const whole = new Kind(parts.reduce((sum, { length }) => sum + length, 0));
  parts.reduce((at, part) => (whole.set(part, at), at + part.length), 0);
  return whole;
}

/**
 * Return the bytes of base64 text; typed arrays are returned unchanged.
 * @param {string | Uint8Array<ArrayBuffer>} base64
 * @returns {Uint8Array<ArrayBuffer>}
 */
export function bytes(base64) {
  if (typeof base64 !== "string") return base64;
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}

/** Return bytes as base64 text. */
export function text(inputs) {
  return btoa(Array.from(inputs, (byte) => String.fromCharCode(byte)).join(""));
}

/** Rotate points around the origin by an angle (radians, clockwise on screen), then move the origin to a centre.
 *  @type {(points: number[][], angle: number, centre: number[]) => number[][]} */
export function turned(points, angle, [x, y]) {
  const [c, s] = [Math.cos(angle), Math.sin(angle)];
  return points.map(([a, b]) => [x + c * a - s * b, y + s * a + c * b]);
}
