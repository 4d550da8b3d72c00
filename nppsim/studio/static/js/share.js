/* Levels and runs in links: #level=DATA, or #level=DATA&run=DATA; DATA is deflated, in base64url. */

import { levelFromBytes } from "../../../wasm/level.js";
import { addMaps } from "./library.js";
import { bytes, text } from "./arrays.js";

const MOST_LEVEL = 100_000; // bytes; a level with the most records has 83,000
const MOST_FRAMES = 100_000;

async function through(data, stream, most = Infinity) {
  const reader = new Blob([data]).stream().pipeThrough(stream).getReader();
  const parts = [];
  let size = 0;
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    parts.push(part.value);
    size += part.value.length;
    if (size > most) throw new Error("it is too long");
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

async function packed(data) {
  const deflated = await through(data, new CompressionStream("deflate-raw"));
  return text(deflated).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

function unpacked(data, most) {
  return through(bytes(data.replaceAll("-", "+").replaceAll("_", "/")), new DecompressionStream("deflate-raw"), most);
}

/** Return the part of an address after # for a level, and for a run on it.  map: its file, bytes or base64.
 *  @type {(level: any, inputs?: ArrayLike<number> | null) => Promise<string>} */
export async function hashOf({ map }, inputs = null) {
  const run = inputs ? `&run=${await packed(Uint8Array.from(inputs))}` : "";
  return `#level=${await packed(bytes(map))}${run}`;
}

/** Copy a link to a level, or to a run on it, to the clipboard.
 *  @type {(studio: any, level: any, inputs?: ArrayLike<number> | null) => Promise<void>} */
export async function copyLink(studio, level, inputs = null) {
  const link = location.origin + location.pathname + (await hashOf(level, inputs));
  try {
    await navigator.clipboard.writeText(link);
    studio.toast(inputs ? "The link to this run is copied" : "The link to this level is copied", "good");
  } catch {
    prompt("Copy this link:", link); // the clipboard needs an encrypted or local page
  }
}

/**
 * Add the level of a link to those of this browser.
 * @param {string} hash
 * @returns {Promise<{level: string, run: object | null}>} level: its id; run: {label, level, inputs}
 */
export async function openLink(hash) {
  const given = new URLSearchParams(hash.slice(1));
  const read = async () => {
    const map = await unpacked(given.get("level") ?? "", MOST_LEVEL);
    const run = given.get("run");
    const inputs = run === null ? null : await unpacked(run, MOST_FRAMES);
    if (inputs?.some((byte) => byte > 15)) throw new Error("its run has invalid inputs");
    levelFromBytes(map, "its level");
    return { map, inputs };
  };
  const { map, inputs } = await read().catch((cause) => {
    throw new Error(`This link is damaged or cut off; copy the whole link again. (${cause.message})`, { cause });
  });
  const [level] = await addMaps([{ map, name: "Level of a link" }]);
  return { level, run: inputs && { label: "Run of a link", level, inputs } };
}
