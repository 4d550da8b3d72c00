/* Targets: times or scores to beat, from a file of the user; stored in the browser.
 *
 *     S-C-12-03  12.567        the clock at which to finish, or earlier, in seconds
 *     S-C-12-04  score 91.2    the score to reach
 *
 * A line has an id of the game, or the beginning of a level's id, and a number; # begins a comment.
 */

import { seconds } from "./clock.js";
import { best, putTargets, storedTargets } from "./store.js";

// an id begins with neither $ nor other signs of a campaign file
const LINE = /^([\w?!][\w-]*)[\s,;]+(score[\s,;]+)?(\d+(?:\.\d+)?)$/i;

/**
 * The target of a level.
 * @typedef {{frames?: number, score?: number}} Target
 */

/** Return whether a file is a table of targets. */
export function isTargets(text) {
  const lines = contents(text);
  return lines.length > 0 && lines.every((line) => LINE.test(line));
}

/** Store the targets of a file instead of earlier ones; return their number. */
export async function setTargets(text) {
  const targets = contents(text).map((line) => {
    const [, id, isScore, number] = LINE.exec(line) ?? [];
    const value = isScore ? { score: Number(number) } : { frames: Math.round(60 * Number(number)) };
    return { id: id.toLowerCase(), ...value };
  });
  await putTargets(targets);
  return targets.length;
}

const contents = (text) =>
  text
    .split(/\r?\n/)
    .map((line) => line.replace(/#.*/, "").trim())
    .filter(Boolean);

/** Return a function that returns the target of a level (its card), or null.
 *  @returns {Promise<(card: {id: string, code: string}) => Target | null>} */
export async function targetsByLevel() {
  const stored = await storedTargets();
  const codes = new Map(stored.map((one) => [one.id, one]));
  const ids = stored.filter(({ id }) => /^[0-9a-f]{8,}$/.test(id));
  return ({ id, code }) => codes.get(code.toLowerCase()) ?? ids.find((one) => id.startsWith(one.id)) ?? null;
}

/** Return the text of a target.  @param {Target} target */
export function targetText({ frames, score }) {
  return frames === undefined ? `score ${score}` : seconds(frames);
}

/** Return whether the best runs of people on a level reach its target.
 *  @param {string} id  @param {Target} target */
export async function isReached(id, { frames = Infinity, score = -Infinity }) {
  const runs = Object.values(await best(id)).flat();
  return runs.some((run) => run.kind === "person" && run.frames <= frames && run.score >= score);
}
