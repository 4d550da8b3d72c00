/* Files of levels and replays (docs/file_formats.md), and what the page shows of a level without playing it.
 *
 *     const { levels, inputs } = readFile(bytes, "run.replay");
 *     const bytes = replayToBytes(level, inputs, { success: true });
 *
 * The Python counterparts are nppsim.levels.text, campaign and ids, and nppsim.replays.replay.
 */

import { LevelError, RECORD_SIZE, decoded, levelFromBytes, levelFromDraft, levelToBytes } from "./level.js";
import { sha256 } from "./sha256.js";

/** @typedef {import("./level.js").Level} Level */

const [COLUMNS, ROWS] = [42, 23];
const NUM_TILE_SHAPES = 38;
const [NINJA, EXIT, EXIT_SWITCH, DEATH_BALL, LEFT_OUT] = [0, 3, 4, 25, 27];
const SWITCH_OF = { [EXIT]: EXIT_SWITCH, 6: 7, 8: 9 };
// Displayed names, by type of entity.
export const ENTITY_NAMES = [
  ...["ninja", "mine", "gold", "exit door", "exit switch", "regular door", "locked door", "locked-door switch"],
  ...["trap door", "trap-door switch", "launch pad", "one-way platform", "chaingun drone", "laser drone", "zap drone"],
  ...["chaser drone", "floor guard", "bounce block", "rocket turret", "gauss turret", "thwump", "toggle mine"],
  ...["evil ninja", "laser turret", "boost pad", "death ball", "mini drone", "alternative death ball", "shove thwump"],
];
// Kinds that the reference simulator leaves out (docs/physics.md, section 8), in the order of notes on them.
const HEAD_BYTES = 1 << 16; // in which a campaign file must have its first level
const COMPLETIONS = [15, 23, 12, 13, 18, 19, 22];
const BEHAVIOUR = { 22: "behave as community tools describe them", 23: "behave partly by guess" };

const OTHER_FORMATS = [
  ["$", "a campaign file whose line is cut off"],
  ["PK\x03\x04", "a zip archive: unpack it"],
  ["ÿØÿ", "a JPEG picture"],
  ["‰PNG", "a PNG picture"],
  ["{", "JSON"],
];

/**
 * Content of a file.
 * @typedef {object} FileContent
 * @property {{level: Level, name: string, code: string}[]} levels - code: id in the game, such as "S-C-12-03", or ""
 * @property {Uint8Array | null} inputs - of a replay, one byte per frame
 * @property {string | null} category - of a campaign file
 * @property {string[]} warnings - defects that are tolerated
 */

/**
 * Read a level (map layout or text), a campaign file or a replay; the content determines the format.
 * @param {Uint8Array} data
 * @param {string} name - of the file
 * @returns {FileContent}
 * @throws {LevelError} for other and damaged files
 */
export function readFile(data, name) {
  const stem = name.replace(/(?<=.)\.[^.]+$/, "");
  /** @type {(level: Level, inputs?: Uint8Array | null, warnings?: string[]) => FileContent} */
  const one = (level, inputs = null, warnings = []) => ({
    levels: [{ level, name: level.title.trim() || stem, code: "" }],
    ...{ inputs, category: null, warnings },
  });
  const begin = textOf(data.subarray(0, HEAD_BYTES));
  if (isCampaign(begin)) return readCampaign(textOf(data), name, stem);
  if (begin.startsWith("nppsim level")) return one(levelFromText(textOf(data), name));
  if (data.length > 8 && !data.subarray(0, 4).some(Boolean)) return one(levelFromBytes(data, name));
  if (begin.startsWith("‰HDF"))
    throw new LevelError(`${name} holds many replays; start the studio with --replays and its name`);
  const [, what] = OTHER_FORMATS.find(([first]) => begin.startsWith(first)) ?? [];
  const { level, inputs, warnings } = replayFromBytes(data, what ? `${name} (${what})` : name);
  return one(level, inputs, warnings);
}

/* Decode the content of a text file, without byte order mark. */
function textOf(data) {
  const [first, second] = data;
  if (first === 0xff && second === 0xfe) return new TextDecoder("utf-16le").decode(data);
  if (first === 0xfe && second === 0xff) return new TextDecoder("utf-16be").decode(data);
  return decoded(data).replace(/^\ufeff/, "");
}

// ---------------------------------------------------------------------------------------------------------------------
// Text

const FIRST_LINE = "nppsim level 1";
const TILE_CHARACTERS = ".#23456789abcdefghijklmnopqrstuvwxyzAB"; // of tile id 0, 1, ...
const ODD_TILE = "?"; // of an id without geometry, which a line "tile ROW COLUMN ID" states
const TYPE_NAMES = ENTITY_NAMES.map((name) => name.replaceAll(" ", "-"));
const STEPS_PER_TILE = 4;

/** Return a level as text, which ``levelFromText`` reads back unchanged. */
export function levelToText({ tiles, records, exitCount, ballCount, title }) {
  const rows = recordsOf(records);
  const lines = [FIRST_LINE];
  const plain = !/[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/u.test(title) && title === title.trim() && title[0] !== '"';
  const escaped = (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
  if (title) lines.push(`title: ${plain ? title : JSON.stringify(title).replace(/[^ -~]/g, escaped)}`);
  for (const [field, kind, stated] of [["exit_count", EXIT, exitCount], ["ball_count", DEATH_BALL, ballCount]])
    if (rows.filter(([type]) => type === kind).length !== stated) lines.push(`${field}: ${stated}`);
  lines.push("tiles:");
  for (let row = 0; row < ROWS; row++) {
    const ids = [...tiles.subarray(COLUMNS * row, COLUMNS * (row + 1))];
    lines.push(ids.map((id) => TILE_CHARACTERS[id] ?? ODD_TILE).join(""));
  }
  tiles.forEach((id, i) => {
    if (id >= NUM_TILE_SHAPES) lines.push(`tile ${Math.floor(i / COLUMNS)} ${i % COLUMNS} ${id}`);
  });
  lines.push("records:");
  for (const [type, x, y, orientation, mode] of rows) {
    const rest = mode ? [orientation, mode] : orientation ? [orientation] : [];
    lines.push([TYPE_NAMES[type] ?? type, x / STEPS_PER_TILE, y / STEPS_PER_TILE, ...rest].join(" "));
  }
  return lines.join("\n") + "\n";
}

/** Read a level from text.  @returns {Level} */
export function levelFromText(text, name) {
  const lines = text.split(NEWLINE).map((line, i) => ({ number: i + 1, line: line.trimEnd() }));
  const used = lines.filter(({ line }) => line && !line.startsWith("#!"));
  let at = 0;
  const refuse = (problem) => {
    const { number, line } = used[at - 1];
    throw new LevelError(`${name}: line ${number} is '${line}': ${problem}`);
  };
  const next = () => {
    if (at < used.length) return used[at++].line;
    return refuse("the text ends here; it needs 'tiles:' and 'records:'");
  };
  const whole = (value, most) => (/^\d{1,9}$/.test(value) && Number(value) <= most ? Number(value) : null);
  const stated = {};
  if (next() !== FIRST_LINE) refuse(`expected '${FIRST_LINE}'`);
  for (let line = next(); line !== "tiles:"; line = next()) {
    const [, field, value] = /^(title|exit_count|ball_count): *(.*)$/.exec(line) ?? [];
    if (!field || (field !== "title" && whole(value, 255) === null)) refuse("expected 'title: ...' or 'tiles:'");
    try {
      stated[field] = value.startsWith('"') || field !== "title" ? JSON.parse(value) : value;
    } catch {
      refuse("the title begins with a quotation mark, but is not a JSON string");
    }
  }
  const tiles = new Uint8Array(ROWS * COLUMNS);
  for (let row = 0; row < ROWS; row++) {
    const line = next();
    if (line.length !== COLUMNS) refuse(`a row of tiles has ${COLUMNS} characters, this one ${line.length}`);
    [...line].forEach((character, column) => {
      const id = character === ODD_TILE ? NUM_TILE_SHAPES : TILE_CHARACTERS.indexOf(character);
      if (id < 0) refuse(`'${character}' is not a tile; tiles are ${TILE_CHARACTERS} (docs/file_formats.md)`);
      tiles[COLUMNS * row + column] = id;
    });
  }
  for (let line = next(); line !== "records:"; line = next()) {
    const [, row, column, id] = /^tile (\d+) (\d+) (\d+)$/.exec(line) ?? [];
    if (whole(row, ROWS - 1) === null || whole(column, COLUMNS - 1) === null || whole(id, 255) === null)
      refuse("expected 'tile ROW COLUMN ID' or 'records:'");
    tiles[COLUMNS * Number(row) + Number(column)] = Number(id);
  }
  const rows = [];
  while (at < used.length) {
    const [kind, ...numbers] = next().split(/\s+/);
    const type = TYPE_NAMES.includes(kind) ? TYPE_NAMES.indexOf(kind) : whole(kind, 255);
    if (type === null) refuse(`'${kind}' is not a type; types are ${TYPE_NAMES.join(", ")}, or a number below 256`);
    if (numbers.length < 2 || numbers.length > 4)
      refuse("expected TYPE X Y, then an orientation and a mode if they are not 0");
    const place = numbers.slice(0, 2).map((number) => {
      const steps = /^\d{1,3}(\.\d{1,2})?$/.test(number) ? STEPS_PER_TILE * Number(number) : 0.5;
      if (!Number.isInteger(steps) || steps > 255)
        refuse(`${number} is not a coordinate; give tiles as a multiple of 0.25, at most 63.75`);
      return steps;
    });
    const rest = numbers.slice(2).map((number) => whole(number, 255));
    if (rest.includes(null)) refuse("orientation and mode are whole numbers below 256");
    rows.push([type, ...place, ...rest, 0, 0].slice(0, RECORD_SIZE));
  }
  if (!rows.length) refuse("there are no records; the first must be the ninja's spawn: ninja X Y");
  const level = levelOf(tiles, rows, stated.title ?? "");
  level.exitCount = stated.exit_count ?? level.exitCount;
  level.ballCount = stated.ball_count ?? level.ballCount;
  return { ...levelFromBytes(levelToBytes(level), name), title: level.title };
}

// ---------------------------------------------------------------------------------------------------------------------
// Campaign files: one level per line, $TITLE#HEX#

const SIZES = [2, 2, 2, 4, 0, 3, 5, 0, 5, 0, 3, 3, 4, 4, 4, 4, 2, 2, 2, 2, 3, 2, 2, 4, 2, 2, 4, 2, 2]; // bytes, by type
const MAX_TITLE = 128; // characters
const NEWLINE = /\r\n|\n|\r/;
const CONTROL = /[\p{Cc}\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/gu; // characters that a title cannot have
const EPISODE = 5; // levels
// Name of a campaign file -> code of its tab, number of levels, whether its last sixth is row X, and has episodes.
const TABS = {
  ...{ SI: ["SI", 125, false, true], S: ["S", 600, true, true], S2: ["SU", 600, true, true] },
  ...{ SL: ["SL", 600, true, true], SS: ["?", 120, true, false], SS2: ["!", 120, true, false] },
};

/* Return whether one of the lines begins a level. */
function isCampaign(text) {
  return text.split(NEWLINE).some((line) => {
    const at = line.search(/#[0-9a-f]{16}/i);
    return at > 0 && line.slice(0, at).includes("$");
  });
}

/** @returns {FileContent} */
function readCampaign(text, name, stem) {
  const lines = text.split(NEWLINE);
  while (!lines.at(-1).trim()) lines.pop();
  /** @type {FileContent} */
  const content = { levels: [], inputs: null, category: stem, warnings: [] };
  lines.forEach((line, i) => {
    if (!line.trim()) return;
    try {
      const level = levelFromLine(line.trim(), `${name}#${i}`);
      const code = codeOf(stem, i, lines.length);
      content.levels.push({ level, name: level.title.trim() || `${stem} ${i}`, code });
    } catch (error) {
      if (!(error instanceof LevelError)) throw error;
      content.warnings.push(`left out: ${error.message}`);
    }
  });
  if (!content.levels.length)
    throw new LevelError(`${name} is a campaign file without a single readable level: ${content.warnings[0]}`);
  return content;
}

/** Return the id of a line of a campaign file (nppsim.levels.ids). */
function codeOf(stem, number, count) {
  const [code, levels, lastRow, episodes] = TABS[stem.toUpperCase()] ?? [];
  if (levels !== count) return `${stem}-${String(number).padStart(3, "0")}`;
  const two = (value) => String(value).padStart(2, "0");
  const size = episodes ? EPISODE : 1;
  const group = Math.floor(number / size);
  const regular = lastRow ? (count / size) * (5 / 6) : count / size;
  const [row, column] = group < regular ? ["ABCDE"[group % 5], Math.floor(group / 5)] : ["X", group - regular];
  return `${code}-${row}-${two(column)}${episodes ? `-${two(number % EPISODE)}` : ""}`;
}

/** Return the id of the episode of a level, or "".  code: id of the level. */
export function episodeOf(code) {
  const grouped = Object.values(TABS).some(([tab, , , episodes]) => episodes && code.startsWith(`${tab}-`));
  return grouped && code.split("-").length === 4 ? code.slice(0, code.lastIndexOf("-")) : "";
}

function levelFromLine(line, name) {
  const refuse = (problem) => {
    throw new LevelError(`${name}: ${problem}; copy the file again`);
  };
  const parts = /\$([^]*)#(0{8}[0-9a-f]{2000,})#/i.exec(line) ?? /^\$([^]*)#([0-9a-f]*)#$/i.exec(line);
  const [, heading, digits] = parts ?? refuse("it is not a line $TITLE#HEX#, or cut off");
  const data = Uint8Array.from(digits.match(/../g) ?? [], (pair) => parseInt(pair[1] + pair[0], 16));
  const [begin, tilesEnd] = [4, 4 + ROWS * COLUMNS];
  if (digits.length % 2 || data.length < tilesEnd) refuse("the line is cut off");
  if (data.subarray(0, begin).some(Boolean)) refuse("the data do not begin with four zero bytes");
  const rows = [];
  let at = tilesEnd;
  SIZES.forEach((size, type) => {
    if (!size) return;
    const count = data[at] * 256 + data[at + 1];
    at += 2;
    if (!(at + count * size <= data.length)) refuse(`the line ends within the records of type ${type}`);
    const found = Array.from({ length: count }, (_, i) => [...data.subarray(at + i * size, at + (i + 1) * size)]);
    at += count * size;
    const record = (kind, values) => [kind, ...values, 0, 0].slice(0, RECORD_SIZE);
    const doors = found.map((values) => record(type, type in SWITCH_OF ? values.slice(0, -2) : values));
    const switches = type in SWITCH_OF ? found.map((values) => record(SWITCH_OF[type], values.slice(-2))) : [];
    if (type === EXIT) rows.push(...doors, ...switches);
    else doors.forEach((door, i) => rows.push(door, ...switches.slice(i, i + 1)));
  });
  if (data.length - at !== 4 || data.subarray(at).some(Boolean)) refuse("four zero bytes must follow the records");
  if (!rows.length) refuse("it has no entities");
  const title = [...heading.replace(CONTROL, "?")].slice(0, MAX_TITLE).join("");
  return { ...levelFromBytes(levelToBytes(levelOf(data.slice(begin, tilesEnd), rows, title)), name), title };
}

/**
 * Encode a level as a line of a campaign file, without line break (nppsim.levels.campaign.to_line).
 * @param {Level} level
 * @returns {string}
 * @throws {LevelError} if the format cannot store the level
 */
export function levelToLine(level) {
  const rows = recordsOf(level.records);
  const data = [0, 0, 0, 0, ...level.tiles];
  SIZES.forEach((size, type) => {
    if (!size) return;
    const own = rows.map((_, i) => i).filter((i) => rows[i][0] === type);
    data.push(own.length >> 8, own.length & 255);
    for (const i of own) {
      const its = type in SWITCH_OF ? (rows[i + (type === EXIT ? level.exitCount : 1)] ?? []).slice(1, 3) : [];
      data.push(...rows[i].slice(1, 1 + size - its.length), ...its);
    }
  });
  const digits = [...data, 0, 0, 0, 0].map((byte) => (byte & 15).toString(16) + (byte >> 4).toString(16)).join("");
  const line = `$${level.title.replace(CONTROL, "?")}#${digits}#`;
  const read = attempt(() => levelFromLine(line, "level"));
  if (!read || fingerprint(read) !== fingerprint(level))
    throw new LevelError("a campaign file cannot store this level unchanged; save it as a map file");
  return line;
}

/** Return the result of a function, or null if the format does not allow it. */
function attempt(read) {
  try {
    return read();
  } catch (error) {
    if (error instanceof LevelError) return null;
    throw error;
  }
}

/** Return a level whose stated counts are those of its records. */
function levelOf(tiles, rows, title) {
  const count = (kind) => rows.filter(([type]) => type === kind).length;
  return { tiles, records: Uint8Array.from(rows.flat()), exitCount: count(EXIT), ballCount: count(DEATH_BALL), title };
}

// ---------------------------------------------------------------------------------------------------------------------
// Replays

const [MAX_VERSION, COMPACT_HEADER, ATTRACT_HEADER] = [100, 13, 30];
const MAP_LENGTHS = 8; // bytes of two lengths, which replace the first bytes of the map in an attract file
const [COMPACT_INPUTS, ALL_INPUTS] = [7, 15]; // highest input bytes; 8 is self-destruct

/**
 * Read a replay: compact 0 or 1, or attract.
 * @param {Uint8Array} data
 * @returns {{level: Level, inputs: Uint8Array, warnings: string[]}}
 */
export function replayFromBytes(data, name) {
  const refuse = (problem) => {
    throw new LevelError(
      `${name} is neither a level (map, text, campaign file) nor a replay, or it is damaged: ${problem}`,
    );
  };
  if (data.length < COMPACT_HEADER) refuse(`it has ${data.length} bytes`);
  const view = new DataView(data.buffer, data.byteOffset, data.length);
  const [first, second] = [view.getUint32(0, true), view.getUint32(4, true)];
  const versioned = first <= MAX_VERSION;
  if (versioned && (first !== 1 || data[COMPACT_HEADER - 1] > 1)) refuse("wrong version or success flag");
  const mapBegin = versioned ? COMPACT_HEADER : MAP_LENGTHS;
  const mapEnd = mapBegin + (versioned ? second : first);
  if (mapEnd > data.length) refuse(`the map should end at byte ${mapEnd}, the file ends at byte ${data.length}`);
  const demo = data.subarray(mapEnd, mapEnd + ATTRACT_HEADER);
  const ends = demo.length === ATTRACT_HEADER && demo.subarray(-4).every((byte) => byte === 255);
  const isAttract = !versioned && ends && demo[0] === 0 && view.getUint32(mapEnd + 1, true) === second;
  const begin = isAttract ? mapEnd + ATTRACT_HEADER : mapEnd;
  const stated = isAttract ? second - ATTRACT_HEADER : versioned ? view.getUint32(8, true) : second;
  const inputs = data.slice(begin);
  if (!inputs.length || inputs.length > stated) refuse(`${stated} inputs are stated, there are ${inputs.length}`);
  const wrong = inputs.findIndex((byte) => byte > (isAttract ? ALL_INPUTS : COMPACT_INPUTS));
  if (wrong >= 0) refuse(`input ${wrong} is ${inputs[wrong]}`);
  const map = data.slice(isAttract ? 0 : mapBegin, mapEnd);
  if (isAttract) map.fill(0, 0, MAP_LENGTHS);
  const short = `byte ${begin}: ${stated} inputs declared, ${inputs.length} present; these are used`;
  return { level: levelFromBytes(map, name), inputs, warnings: inputs.length < stated ? [short] : [] };
}

/**
 * Encode a run.  @returns {Uint8Array}
 * @param {Level} level
 * @param {Uint8Array} inputs
 * @param {{format?: "compact" | "attract", success?: boolean}} options
 */
export function replayToBytes(level, inputs, { format = "compact", success = false } = {}) {
  const map = levelToBytes(level);
  const demoSize = ATTRACT_HEADER + inputs.length;
  const compact = format === "compact";
  if (!compact && success)
    throw new LevelError("an attract file ends with a death, so it cannot store a run that wins; save a replay file");
  if (compact && inputs.some((byte) => byte > COMPACT_INPUTS))
    throw new LevelError("a replay file cannot store a self-destruct; save an attract file");
  const size = compact ? COMPACT_HEADER + map.length + inputs.length : map.length + demoSize;
  const data = new Uint8Array(size);
  const view = new DataView(data.buffer);
  if (compact) {
    [1, map.length, inputs.length].forEach((value, i) => view.setUint32(4 * i, value, true));
    data[COMPACT_HEADER - 1] = Number(success);
    data.set(map, COMPACT_HEADER);
  } else {
    const begin = map.length;
    data.set(map);
    [map.length - MAP_LENGTHS, demoSize].forEach((value, i) => view.setUint32(4 * i, value, true));
    [demoSize, 1, inputs.length].forEach((value, i) => view.setUint32(begin + 1 + 4 * i, value, true));
    data[begin + 25] = 1; // player mask
    data.fill(255, begin + ATTRACT_HEADER - 4, begin + ATTRACT_HEADER);
  }
  data.set(inputs, size - inputs.length);
  return data;
}

// ---------------------------------------------------------------------------------------------------------------------
// Facts about a level

/** Return the records as rows (type, x, y, orientation, mode). */
function recordsOf(records) {
  return Array.from({ length: records.length / RECORD_SIZE }, (_, i) => [
    ...records.subarray(RECORD_SIZE * i, RECORD_SIZE * (i + 1)),
  ]);
}

/** Return the draft of a level for the editor (``levelFromDraft``), and descriptions of what it does not preserve. */
export function draftOf(level) {
  const rows = recordsOf(level.records);
  const lost = [];
  const entities = [];
  const switches = Object.values(SWITCH_OF);
  rows.slice(1).forEach(([kind, x, y, orientation, mode], i) => {
    if (kind === NINJA) lost.push("a second spawn, which creates nothing, is left out");
    if (kind === NINJA || switches.includes(kind)) return;
    const entity = { kind, x, y, orientation: kind === EXIT ? 0 : orientation, mode: kind in SWITCH_OF ? 0 : mode };
    if (kind in SWITCH_OF) {
      const its = rows[i + 1 + (kind === EXIT ? level.exitCount : 1)];
      if (its) entity.switch = its.slice(1, 3);
      else {
        const place = `(${x / STEPS_PER_TILE}, ${y / STEPS_PER_TILE})`;
        lost.push(`the ${ENTITY_NAMES[kind]} at ${place} has no switch and is left out`);
        return;
      }
    }
    entities.push(entity);
  });
  entities.sort((a, b) => a.kind - b.kind);
  const tiles = Array.from({ length: ROWS }, (_, row) => [...level.tiles.subarray(COLUMNS * row, COLUMNS * (row + 1))]);
  const draft = { title: level.title, tiles, spawn: rows[0].slice(1, 3), entities };
  if (!lost.length && fingerprint(levelFromDraft(draft)) !== fingerprint(level))
    lost.push("the order of records in the file is unusual; saving writes them in the game's order");
  return { draft, lost };
}

/**
 * Return what the gallery shows of a level.
 * @param {Level} level
 * @param {{name: string, code?: string, category?: string | null, par?: number | null}} known
 */
export function cardOf(level, { name, code = "", category = null, par = null }) {
  const types = recordsOf(level.records.subarray(RECORD_SIZE)).map(([type]) => type);
  const open = [...level.tiles.keys()].filter((i) => level.tiles[i] !== 1);
  const extent = (places) => (places.length ? Math.max(...places) - Math.min(...places) + 1 : 0);
  const known = [...new Set(types)].filter((type) => type in ENTITY_NAMES).sort((a, b) => a - b);
  return {
    ...{ id: fingerprint(level), name, category, par, code, episode: episodeOf(code) },
    support: supportOf(types),
    extent: [extent(open.map((i) => i % COLUMNS)), extent(open.map((i) => Math.floor(i / COLUMNS)))],
    entities: Object.fromEntries(
      known.map((type) => [ENTITY_NAMES[type], types.filter((other) => other === type).length]),
    ),
  };
}

/** Return {grade, notes} of Level.support and Level.support_notes.  types: of the records without the spawn. */
function supportOf(types) {
  const sources = new Map(); // behaviour -> names
  for (const kind of COMPLETIONS.filter((one) => types.includes(one))) {
    const behaviour = BEHAVIOUR[kind] ?? "behave as in N v2.0";
    sources.set(behaviour, [...(sources.get(behaviour) ?? []), `${ENTITY_NAMES[kind]}s`]);
  }
  const modelled = [...sources].map(([behaviour, names]) => `${names.join(" and ")} ${behaviour}`);
  const counts = new Map(); // name -> number of entities that are left out
  for (const type of types) {
    const name = ENTITY_NAMES[type] ?? "unknown entity";
    if (type === LEFT_OUT || !(type in ENTITY_NAMES)) counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  const missing = [...counts].map(([name, count]) =>
    count === 1 ? `1 ${name} is left out` : `${count} ${name.replace("entity", "entitie")}s are left out`,
  );
  const grade = missing.length ? "unsupported" : modelled.length ? "modelled" : "exact";
  return { grade, notes: [...modelled, ...missing] };
}

/** Return the id of a level (Level.fingerprint): SHA-256 of the data that the simulation reads. */
export function fingerprint({ tiles, records, exitCount, ballCount }) {
  return sha256([...tiles, ...records, exitCount, ballCount]);
}
