/* Memory of the states of games: rows of bytes, with the parts of nppsim.physics.state. */

export const WORD = 8; // bytes; parts begin at multiples of it

/** Parts of the state of a level, {name: [dtype, ...shape]}.  world: of the level, in the memory of the kernels.
 *  @returns {Record<string, any[]>} */
export function gameParts(kernels, world) {
  const least = (count) => Math.max(count, 1);
  return {
    ninja: ["ninja"],
    entities: ["entity", least(world.entity.shape[0])],
    movers: ["mover", least(world.mover.shape[0])],
    trail: ["trail", least(kernels.record(world.level, 0).trail)],
  };
}

/**
 * Allocate rows of bytes with parts {name: [dtype, ...shape]}; return the rows, and a view of each part.
 * @returns {{rows: import("./kernels.js").KernelArray, views: Record<string, any>}}
 */
export function allocate(kernels, count, parts) {
  const begins = {};
  let size = 0;
  for (const [name, [dtype, length = 1]] of Object.entries(parts)) {
    begins[name] = size;
    size += Math.ceil((kernels.itemSize(dtype) * length) / WORD) * WORD;
  }
  const rows = kernels.array("uint8", [count, size]);
  const views = {};
  for (const [name, [dtype, ...shape]] of Object.entries(parts)) {
    const itemSize = kernels.itemSize(dtype);
    const strides = [size, itemSize].slice(0, 1 + shape.length);
    views[name] = { dtype, itemSize, strides, shape: [count, ...shape], address: rows.address + begins[name] };
  }
  return { rows, views };
}

/**
 * Allocate states without progress towards the exit (nppsim.decision.make_states).
 * @param {import("./kernels.js").Kernels} kernels
 * @param {any} world - of the level, in the memory of the kernels
 * @param {number} count
 * @returns {{rows: import("./kernels.js").KernelArray, state: Record<string, any>}}
 */
export function gameStates(kernels, world, count) {
  const { rows, views } = allocate(kernels, count, gameParts(kernels, world));
  const nothing = kernels.array("uint8", [count, 0]);
  return { rows, state: { ...views, progress: views.ninja, visited: nothing, terms: nothing } };
}
