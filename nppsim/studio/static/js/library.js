/* Levels and runs that the page shows: those of the studio, and those stored in this browser. */

import { readFile } from "../../../wasm/files.js";
import { levelFromBytes, levelToBytes } from "../../../wasm/level.js";
import { get } from "./api.js";
import { isTargets, setTargets, targetsByLevel } from "./targets.js";
import { addLevels, importAll, isExport, ownLevel, ownLevels, storedRun, storedRuns } from "./store.js";

const LEVELS_OF_EPISODE = 5;
const MOST_BYTES = 64 << 20; // of an opened file

/** Return {levels: cards of all levels with their targets, own: ids of those stored in this browser, problems:
 *  unreadable files}. */
export async function allLevels() {
  const [{ levels, problems }, stored, targetOf] = await Promise.all([get("levels"), ownLevels(), targetsByLevel()]);
  const known = new Set(levels.map(({ id }) => id));
  const own = stored.filter(({ id }) => !known.has(id)).map(({ card }) => card);
  const all = [...levels, ...own].map((card) => ({ ...card, target: targetOf(card) }));
  return { levels: all, own: own.map(({ id }) => id), problems };
}

/** Return the id of the level with an id of the game, such as "S-C-12-03"; any other text unchanged. */
export async function resolveId(text) {
  if (!text.includes("-")) return text;
  const { levels } = await allLevels();
  return levels.find(({ code }) => code && code.toUpperCase() === text.toUpperCase())?.id ?? text;
}

/** Return the card of a level with its target, its map file ("map": bytes or base64) and "next", the id of the next
 *  level or null. */
export async function aboutLevel(id) {
  const [own, targetOf] = await Promise.all([ownLevel(id), targetsByLevel()]);
  if (!own) {
    const about = await get(`levels/${id}`);
    return { ...about, target: targetOf(about) };
  }
  const after = (await ownLevels()).filter(({ order }) => order > own.order);
  return { ...own.card, target: targetOf(own.card), map: own.map, next: after[0]?.id ?? null };
}

/** Return stored runs, newest first, then replays, each with its path in addresses. */
export async function allRuns() {
  const [runs, { replays }] = await Promise.all([storedRuns(), get("replays")]);
  const pathed = (kind) => (one) => ({ ...one, kind, path: `${kind}/${one.number}` });
  return [...runs.map(pathed("runs")), ...replays.map(pathed("replays"))];
}

/** Return {label, level: id, inputs} of a run.  path: runs/NUMBER of a stored run, replays/NUMBER of the studio's. */
export async function findRun(path) {
  const [kind, number] = path.split("/");
  if (kind !== "runs") return get(`${path}/run`);
  const run = await storedRun(number);
  const { levels } = await allLevels();
  if (!levels.some(({ id }) => id === run.level)) [run.level] = await addMaps([{ map: run.map, name: run.label }]);
  return run;
}

/** Add levels to those of this browser, unless the studio has them.  levels: [{map, name, code, category}].
 *  Returns their ids. */
export async function addMaps(levels) {
  const made = levels.map((one) => ({ code: "", category: null, level: levelFromBytes(one.map, one.name), ...one }));
  const titled = made.map((one) => ({ ...one, name: one.level.title.trim() || one.name || "untitled" }));
  return addLevels(titled, (await get("levels")).levels);
}

/** Return the ids of the levels of an episode, such as "S-C-12". */
export async function episodeLevels(code) {
  const levels = (await allLevels()).levels.filter(({ episode }) => episode === code);
  if (levels.length !== LEVELS_OF_EPISODE)
    throw new Error(
      `the episode ${code} has ${LEVELS_OF_EPISODE} levels, of which ${levels.length} are here; open its campaign file`,
    );
  return levels.sort((a, b) => a.code.localeCompare(b.code)).map(({ id }) => id);
}

/**
 * Open a file: levels are added to those of this browser, as are the data of ``exportAll``.
 * @param {File} file
 * @returns {Promise<{level: string | null, levels: number, category: string | null, run: object | null, note: string,
 *   warnings: string[], view?: string}>} level: id of the first; run: as ``findRun``
 */
export async function openFile(file) {
  if (file.size > MOST_BYTES) throw new Error(`${file.name} has more than ${MOST_BYTES >> 20} MB: it is not a level`);
  const data = await file.arrayBuffer().then(
    (buffer) => new Uint8Array(buffer),
    () => {
      throw new Error(`${file.name} cannot be read: drop files, not folders`);
    },
  );
  if (isExport(data)) {
    const note = `${file.name}: ${await importAll(data)} runs were added`;
    return { level: null, levels: 0, category: null, run: null, note, warnings: [] };
  }
  const text = /\.(txt|csv|tsv)$/i.test(file.name) ? new TextDecoder().decode(data) : "";
  if (isTargets(text)) {
    const note = `${file.name}: ${await setTargets(text)} targets`;
    return { level: null, levels: 0, category: null, run: null, note, warnings: [], view: "#/levels" };
  }
  const { levels, inputs, category, warnings } = readFile(data, file.name);
  const ids = await addMaps(
    levels.map(({ level, name, code }) => ({ map: levelToBytes(level), name, code, category })),
  );
  const known = (await get("levels")).levels.find(({ id }) => id === ids[0]);
  const title = levels[0].level.title.trim();
  const renamed = ids.length === 1 && known && title && known.name !== title;
  const run = inputs && { label: file.name.replace(/(?<=.)\.[^.]+$/, ""), level: ids[0], inputs };
  const note = ids.length > 1 ? `${file.name}: ${ids.length} levels are open` : `${file.name} is open`;
  if (renamed) warnings.push(`"${title}" is ${[known.code, `"${known.name}"`].join(" ").trim()} with another title`);
  return { level: ids[0], levels: ids.length, category, run, note, warnings };
}

/** Let the browser save bytes as a file. */
export function saveFile(data, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([data], { type: "application/octet-stream" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000); // the browser reads the object after the click
}

/** Return a file name without suffix for a level: its title with other characters replaced, or its id. */
export function fileName({ title, id }) {
  return title.normalize().trim().replace(/^[.-]|[^\p{L}\p{N} _.-]/gu, "_") || id.slice(0, 8);
}
