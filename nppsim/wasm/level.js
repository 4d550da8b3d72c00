/* Levels: the map layout of N++, and the compilation to the arrays that kernels take.
 *
 *     const level = levelFromBytes(bytes, "S-A-00-00.map");
 *     const compiled = compileLevel(new Kernels(await loadModule("game")), level);
 *     const world = planner.copyIn(compiled.world); // for kernels of another module
 *
 * Source: docs/physics.md, section 2; the Python counterparts are nppsim.levels.level, nppsim.compile and nppsim.bank.
 */

const [COLUMNS, ROWS] = [42, 23];
const [CELLS_X, CELLS_Y] = [COLUMNS + 2, ROWS + 2];
const NUM_CELLS = CELLS_X * CELLS_Y;
const NUM_TILE_SHAPES = 38;
const [GRID_SIZE, NUM_NODES, DOOR_WINDOW] = [9078, 4539, 9];
const MOST_SEGMENTS = 13; // of a cell
const [TIME_LIMIT_BASE, TIME_LIMIT_PER_PX, MAX_TIME_LIMIT] = [300, 2, 6000]; // frames

// Map layout: offsets and sizes in bytes.
const [TITLE_OFFSET, TITLE_SIZE] = [38, 128];
const TILES_OFFSET = 184;
const COUNTS_OFFSET = TILES_OFFSET + ROWS * COLUMNS;
const NUM_COUNTS = 40;
const RECORDS_OFFSET = 1230;
export const RECORD_SIZE = 5; // type, x, y, orientation, mode
const MAX_RECORDS = 16_383;
const [MAX_X, MAX_Y] = [4 * CELLS_X, 4 * CELLS_Y]; // size of the stage in steps of 6 px

// Characters of the bytes 80 to 9f.
const WINDOWS_1252 = "€\ufffd‚ƒ„…†‡ˆ‰Š‹Œ\ufffdŽ\ufffd\ufffd‘’“”•–—˜™š›œ\ufffdžŸ";

const [NINJA, EXIT, EXIT_SWITCH, DEATH_BALL] = [0, 3, 4, 25];
const SWITCH_OF_DOOR = { 6: 7, 8: 9 };
const DRONES = [14, 15, 26]; // whose modes are reduced modulo 4
const ORIENTED = [5, 6, 8, 10, 11, ...DRONES, 20, 23]; // whose orientations are reduced modulo 8

/**
 * @typedef {object} Level
 * @property {Uint8Array} tiles - 23 rows of 42 tile ids
 * @property {Uint8Array} records - n times (type, x, y, orientation, mode), in file order; the spawn comes first
 * @property {number} exitCount - stated number of exits; the switch of an exit is that many records after it
 * @property {number} ballCount - stated number of death balls
 * @property {string} title
 */

/** Bytes that are not a usable level; the message names the file, the problem and the remedy. */
export class LevelError extends Error {}

/**
 * Decode the map layout.
 * @param {Uint8Array} data
 * @param {string} name - for messages
 * @returns {Level}
 */
export function levelFromBytes(data, name = "level") {
  const refuse = (problem) => {
    throw new LevelError(`${name}: ${problem}`);
  };
  const view = new DataView(data.buffer, data.byteOffset, data.length);
  if (data.length < RECORDS_OFFSET + RECORD_SIZE)
    refuse(
      `${data.length} bytes; an N++ map has at least ${RECORDS_OFFSET + RECORD_SIZE}: it is cut off or not a map; ` +
        "copy or download it again",
    );
  if (view.getUint32(0)) refuse("it does not begin with four zero bytes: this is not an N++ map");
  const stated = view.getUint32(4, true);
  if (stated && stated !== data.length)
    refuse(`a map of ${stated} bytes is stated, there are ${data.length}; copy or download it again`);
  const count = (kind) => view.getUint16(COUNTS_OFFSET + 2 * kind, true);
  for (let kind = 0; kind < NUM_COUNTS; kind++)
    if (count(kind) > MAX_RECORDS)
      refuse(`${count(kind)} records of type ${kind} are stated, at most ${MAX_RECORDS} can be used: not an N++ map`);
  const used = Math.floor((data.length - RECORDS_OFFSET) / RECORD_SIZE);
  const records = data.slice(RECORDS_OFFSET, RECORDS_OFFSET + RECORD_SIZE * used);
  const found = Array(256).fill(0);
  for (let at = 0; at < records.length; at += RECORD_SIZE) found[records[at]] += 1;
  const kinds = [...Array(NUM_COUNTS).keys()].filter((kind) => ![EXIT, DEATH_BALL].includes(kind)); // may be miscounted
  const differ = kinds.filter((kind) => found[kind] !== count(kind));
  if (differ.length && differ.every((kind) => found[kind] < count(kind)) && !found.slice(differ[0] + 2).some(Boolean))
    refuse("some of the stated records are missing at its end: it was cut off, copy or download it again");
  return checked(
    {
      tiles: data.slice(TILES_OFFSET, COUNTS_OFFSET),
      records,
      exitCount: count(EXIT) & 255,
      ballCount: count(DEATH_BALL) & 255,
      title: titleOf(data.subarray(TITLE_OFFSET, TITLE_OFFSET + TITLE_SIZE)),
    },
    refuse,
  );
}

/* Decode the title in the header. */
function titleOf(header) {
  const end = header.indexOf(0);
  return decoded(header.subarray(0, end < 0 ? TITLE_SIZE : end));
}

/** Decode UTF-8, or Windows-1252 if that is impossible. */
export function decoded(data) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data);
  } catch {
    const text = new TextDecoder("latin1").decode(data); // of bytes 80 to 9f, as they are or already decoded
    return text.replace(/[\u0080-\u009f]/g, (byte) => WINDOWS_1252[byte.charCodeAt(0) - 128]);
  }
}

/** Return the level of a draft of the editor ({title, tiles, spawn, entities}). */
export function levelFromDraft({ title, tiles, spawn, entities }, name = "draft") {
  const refuse = (problem) => {
    throw new LevelError(`${name}: ${problem}`);
  };
  if (!spawn) refuse("there is no spawn; place the ninja");
  const rows = [];
  const ofKind = (wanted) => entities.filter(({ kind }) => kind === wanted);
  for (const { kind, x, y } of ofKind(EXIT)) rows.push([kind, [kind, x, y, 0, 0]]);
  for (const one of ofKind(EXIT)) rows.push([EXIT_SWITCH, [EXIT_SWITCH, ...one.switch, 0, 0]]);
  for (const [door, its] of Object.entries(SWITCH_OF_DOOR))
    for (const one of ofKind(Number(door)))
      rows.push([one.kind, [one.kind, one.x, one.y, one.orientation, 0]], [one.kind, [its, ...one.switch, 0, 0]]);
  for (const { kind, x, y, orientation, mode } of entities)
    if (kind !== EXIT && !(kind in SWITCH_OF_DOOR)) rows.push([kind, [kind, x, y, orientation, mode]]);
  rows.sort(([a], [b]) => a - b); // stable, so that a switch stays behind its door
  const records = Uint8Array.from([NINJA, ...spawn, 0, 0, ...rows.flatMap(([, record]) => record)]);
  const counts = [EXIT, DEATH_BALL].map((kind) => ofKind(kind).length);
  return checked(
    { tiles: Uint8Array.from(tiles.flat()), records, exitCount: counts[0], ballCount: counts[1], title },
    refuse,
  );
}

/** Encode a level in the map layout. */
export function levelToBytes({ tiles, records, exitCount, ballCount, title }) {
  const data = new Uint8Array(RECORDS_OFFSET + records.length);
  const view = new DataView(data.buffer);
  new TextEncoder().encodeInto(title, data.subarray(TITLE_OFFSET, TITLE_OFFSET + TITLE_SIZE)); // whole characters
  data.set(tiles, TILES_OFFSET);
  data.set(records, RECORDS_OFFSET);
  for (let at = 0; at < records.length; at += RECORD_SIZE)
    if (records[at] < NUM_COUNTS) {
      const place = COUNTS_OFFSET + 2 * records[at];
      view.setUint16(place, view.getUint16(place, true) + 1, true);
    }
  view.setUint16(COUNTS_OFFSET + 2 * EXIT, exitCount, true);
  view.setUint16(COUNTS_OFFSET + 2 * DEATH_BALL, ballCount, true);
  return data;
}

/** Check the spawn of a level, and reduce orientations and modes as the game does. */
function checked(level, refuse) {
  const { tiles, records } = level;
  if (records.length > RECORD_SIZE * MAX_RECORDS)
    refuse(`${records.length / RECORD_SIZE} records; at most ${MAX_RECORDS} can be used: is this an N++ map?`);
  const [type, x, y] = records;
  if (x > MAX_X || y > MAX_Y)
    refuse(
      `the spawn is at (${6 * x}, ${6 * y}) px, outside the stage of ${6 * MAX_X} x ${6 * MAX_Y} px: not an N++ map`,
    );
  if (!records.subarray(0, RECORD_SIZE).some(Boolean)) refuse("the first record, the spawn, is empty: not an N++ map");
  if (type !== NINJA && tiles.some((tile) => tile >= NUM_TILE_SHAPES))
    refuse(`the first record has type ${type}, and tile ids are above ${NUM_TILE_SHAPES - 1}: not an N++ map`);
  for (let at = 0; at < records.length; at += RECORD_SIZE) {
    if (ORIENTED.includes(records[at])) records[at + 3] %= 8;
    if (DRONES.includes(records[at])) records[at + 4] %= 4;
  }
  return level;
}

/**
 * Arrays {dtype, shape, bytes} of a level, for ``Kernels.copyIn``.
 * @typedef {object} CompiledLevel
 * @property {Level} level
 * @property {Object<string, any>} stage - uint8[44, 25], tile ids with a border of full tiles, x first
 * @property {Object<string, any>} world - arrays of the physics kernels (nppsim.compile.World)
 */

/**
 * Compile a level, as nppsim.bank.LevelBank does for a single level.
 * @param {import("./kernels.js").Kernels} kernels - of the module "game"
 * @param {Level} level
 * @returns {CompiledLevel}
 */
export function compileLevel(kernels, level) {
  const most = level.records.length / RECORD_SIZE;
  const mark = kernels.mark();
  const stage = kernels.copyIn({ dtype: "uint8", shape: [CELLS_X, CELLS_Y], bytes: stageOf(level) });
  const records = kernels.copyIn({ dtype: "uint8", shape: [most, RECORD_SIZE], bytes: level.records });
  const world = {
    level: kernels.array("level", [1]),
    entity: kernels.array("placed", [2 * most]),
    mover: kernels.array("mover", [most]),
    segments: kernels.array("segment", [NUM_CELLS * MOST_SEGMENTS + most]),
    cell_start: kernels.array("int32", [1, NUM_CELLS + 1]),
    near: kernels.array("uint8", [1, NUM_CELLS]),
    entity_cell_start: kernels.array("int32", [1, NUM_CELLS + 1]),
    entity_items: kernels.array("int16", [2 * most, 4]),
    grid: kernels.array("uint8", [1, GRID_SIZE]),
  };
  const { exitCount: exit_count, ballCount: ball_count } = level;
  const [entities, movers, items, segments] = kernels.call("compile", {
    ...{ stage, records, exit_count, ball_count, completions: 1, world },
  });
  world.entity.shape = [entities];
  world.mover.shape = [movers];
  world.segments.shape = [segments];
  world.entity_items.shape = [items, 4];
  kernels.call("place_lasers", { world, entities: kernels.array("entity", [Math.max(entities, 1)]) });
  const compiled = { level, ...kernels.copyOut({ stage, world }) };
  kernels.release(mark);
  return compiled;
}

function stageOf({ tiles }) {
  const stage = new Uint8Array(NUM_CELLS).fill(1);
  tiles.forEach((tile, i) => {
    const [column, row] = [i % COLUMNS, Math.floor(i / COLUMNS)];
    stage[(column + 1) * CELLS_Y + row + 1] = tile < NUM_TILE_SHAPES ? tile : 0;
  });
  return stage;
}

/**
 * Compute the path fields of a level with the doors in their initial state (nppsim.bank.LevelPaths).
 * @param {import("./kernels.js").Kernels} kernels - of the module "game"
 * @param {CompiledLevel} compiled
 * @param {number} leastTime - frames, minimum of the time limit
 * @returns {Object<string, any>} arrays {dtype, shape, bytes} by name, with "time_limit"
 */
export function computePaths(kernels, { stage, world }, leastTime = 0) {
  const mark = kernels.mark();
  const given = kernels.copyIn({ world, stage: { ...stage, shape: [1, CELLS_X, CELLS_Y] } });
  const { switches_first, switches_end } = kernels.record(given.world.level, 0);
  const doors = switches_end - switches_first;
  const fields = {
    nodes: kernels.array("uint16", [1, NUM_NODES]),
    effects: kernels.array("uint16", [doors, DOOR_WINDOW ** 2]),
    effects_first: kernels.array("int64", [2]),
    distance: kernels.array("uint16", [1, 2, NUM_NODES]),
    next_step: kernels.array("uint8", [1, 2, NUM_NODES]),
    switch_to_exit: kernels.array("int64", [1]),
    length: kernels.array("float32", [1]),
  };
  kernels.values(fields.effects_first)[1] = BigInt(doors);
  kernels.call("compute_paths", { ...given, ...fields });
  const time_limit = kernels.array("int32", [1]);
  const [length] = kernels.values(fields.length);
  const frames = Math.fround(TIME_LIMIT_BASE + Math.fround(TIME_LIMIT_PER_PX * length));
  kernels.values(time_limit)[0] = Math.min(Math.max(frames, leastTime), MAX_TIME_LIMIT);
  const paths = kernels.copyOut({ ...fields, time_limit });
  kernels.release(mark);
  return paths;
}
