/* Calls compiled kernels, in browsers and in Node.js.  ``make wasm`` builds the modules and interface.json.
 *
 *     const kernels = new Kernels(await loadModule("game"));
 *     const inputs = kernels.array("uint8", [600]);
 *     kernels.bytes(inputs).fill(2);
 *     const frames = kernels.call("play_on", { state, world, inputs });
 *
 * Arrays are in the module's memory and have numpy's layout.  A call may move this memory, which empties all typed
 * arrays: take a new view (``bytes``, ``values``, ``record``) after each call.
 */

const SLOT = 8; // bytes of a number among the arguments and results
const SLOTS_BYTES = 32768; // for the arguments of a call, and as many for its results
const VALUES = {
  bool: Uint8Array,
  int8: Int8Array,
  uint8: Uint8Array,
  int16: Int16Array,
  uint16: Uint16Array,
  int32: Int32Array,
  uint32: Uint32Array,
  int64: BigInt64Array,
  uint64: BigUint64Array,
  float32: Float32Array,
  float64: Float64Array,
};
const GETTERS = {
  "|b1": "Uint8",
  "|i1": "Int8",
  "|u1": "Uint8",
  "<i2": "Int16",
  "<u2": "Uint16",
  "<i4": "Int32",
  "<f4": "Float32",
  "<f8": "Float64",
  "<i8": "BigInt64",
};

/**
 * An array in the memory of a module.
 * @typedef {object} KernelArray
 * @property {string} dtype - name of a number type, or of a record in interface.json
 * @property {number[]} shape
 * @property {number[]} strides - bytes
 * @property {number} address - of the first item
 * @property {number} itemSize - bytes
 */

/** A kernel raised an exception, or an argument has the wrong type. */
export class KernelError extends Error {}

/**
 * A compiled module and the description of its entries; can be posted to a worker.
 * @typedef {{module: WebAssembly.Module, records: Object<string, any>, entries: Object<string, any>}} KernelModule
 */

/** @type {Map<string, Promise<KernelModule>>} */
const loaded = new Map(); // by name

/**
 * Load and compile a module of this folder, once per page, worker or process of Node.js.
 * @param {"game" | "agent" | "planner"} name
 * @returns {Promise<KernelModule>}
 */
export function loadModule(name) {
  const module = loaded.get(name) ?? readModule(name);
  loaded.set(name, module);
  return module;
}

async function readModule(name) {
  const [binary, description] = [`${name}.wasm`, "interface.json"].map((file) => new URL(file, import.meta.url));
  if (binary.protocol === "file:") {
    const node = "node:fs/promises";
    const { readFile } = await import(node);
    return compileModule(await readFile(binary), JSON.parse(await readFile(description, "utf-8")), name);
  }
  const { records, modules, suffix } = await fetch(description).then((answer) => answer.json());
  const module = await WebAssembly.compileStreaming(suffix ? inflated(binary + suffix) : fetch(binary));
  return { module, records, entries: modules[name] };
}

/** Fetch a compressed module of an exported site. */
async function inflated(address) {
  const packed = await (await fetch(address)).blob();
  const headers = { "Content-Type": "application/wasm" };
  return new Response(packed.stream().pipeThrough(new DecompressionStream("gzip")), { headers });
}

/**
 * Compile the content of NAME.wasm.
 * @param {BufferSource} binary
 * @param {{records: object, modules: object}} description - content of interface.json
 * @param {string} name
 * @returns {Promise<KernelModule>}
 */
export async function compileModule(binary, { records, modules }, name) {
  return { module: await WebAssembly.compile(binary), records, entries: modules[name] };
}

/** An instance of a module, with a memory of its own. */
export class Kernels {
  /** @param {KernelModule} compiled */
  constructor({ module, records, entries }) {
    /** @type {any} */
    this.exports = new WebAssembly.Instance(module, {}).exports;
    this.records = records;
    this.entries = entries;
    this.slots = this.exports.allocate(2 * SLOTS_BYTES);
  }

  /** Position in the stack of arrays; ``release(mark())`` frees the arrays that were allocated in between. */
  mark() {
    return this.exports.allocate(0);
  }

  release(mark) {
    this.exports.release(mark);
  }

  /**
   * Allocate an array of zeros.
   * @param {string} dtype
   * @param {number[]} shape
   * @returns {KernelArray}
   */
  array(dtype, shape) {
    const size = this.itemSize(dtype);
    const strides = shape.map((_, axis) => size * count(shape.slice(axis + 1)));
    const array = { dtype, shape, strides, itemSize: size, address: this.exports.allocate(size * count(shape)) };
    this.bytes(array).fill(0);
    return array;
  }

  /** Copy arrays out of the memory: an array becomes {dtype, shape, bytes}; of an object, all values are copied.
   *  @returns {any} */
  copyOut(value) {
    if (value.dtype) return { dtype: value.dtype, shape: value.shape, bytes: this.bytes(value).slice() };
    return mapped(value, (part) => this.copyOut(part));
  }

  /** Allocate copies of arrays {dtype, shape, bytes}; of an object, all values are copied.
   *  @returns {any} */
  copyIn(value) {
    if (!value.dtype) return mapped(value, (part) => this.copyIn(part));
    const array = this.array(value.dtype, value.shape);
    this.bytes(array).set(value.bytes);
    return array;
  }

  itemSize(dtype) {
    if (!(dtype in VALUES) && !(dtype in this.records)) throw new KernelError(`unknown dtype ${dtype}`);
    return VALUES[dtype]?.BYTES_PER_ELEMENT ?? this.records[dtype].size;
  }

  /** Bytes of a contiguous array. */
  bytes({ address, shape, itemSize }) {
    return new Uint8Array(this.exports.memory.buffer, address, itemSize * count(shape));
  }

  /** Numbers of a contiguous array. */
  values({ dtype, address, shape }) {
    return new VALUES[dtype](this.exports.memory.buffer, address, count(shape));
  }

  /**
   * Access to the fields of a record by name: ``record(ninjas, 0).x = 24``.
   * @param {KernelArray} array - of records
   * @param {...number} index
   * @returns {any}
   */
  record(array, ...index) {
    const { size, fields } = this.records[array.dtype];
    const at = index.reduce((sum, i, axis) => sum + i * array.strides[axis], array.address);
    const view = new DataView(this.exports.memory.buffer, at, size);
    const access = ([type, offset]) => ({
      get: () => Number(view[`get${GETTERS[type]}`](offset, true)),
      set: (value) => view[`set${GETTERS[type]}`](offset, type === "<i8" ? BigInt(value) : value, true),
      enumerable: true,
    });
    return Object.defineProperties({}, Object.fromEntries(Object.entries(fields).map(([n, f]) => [n, access(f)])));
  }

  /**
   * Call an entry.
   * @param {string} name
   * @param {object} given - arguments by name: numbers, arrays, and objects with the fields of a named tuple
   * @returns {*} a number, a list of results, a typed array with a copy of a new array, or null
   */
  call(name, given) {
    const { arguments: types, result } = this.entries[name];
    const view = new DataView(this.exports.memory.buffer);
    let slot = this.slots;
    for (const [argument, type] of types) slot = this.put(view, slot, type, given[argument], `${name}: ${argument}`);
    const results = this.slots + SLOTS_BYTES;
    const mark = this.mark();
    if (this.exports[name](this.slots, results)) throw new KernelError(`${name} raised an exception`);
    const [value] = this.take(new DataView(this.exports.memory.buffer), results, result);
    this.release(mark);
    return value;
  }

  /** Write an argument; return the next slot. */
  put(view, slot, type, value, name) {
    if (value === undefined || value === null) throw new KernelError(`${name} is missing`);
    if (type.tuple) {
      for (const [field, part] of type.tuple) slot = this.put(view, slot, part, value[field], `${name}.${field}`);
      return slot;
    }
    if (type.dtype) {
      if (value.dtype !== type.dtype || value.shape?.length !== type.dimensions)
        throw new KernelError(
          `${name} must be ${type.dtype} with ${type.dimensions} dimensions; ` +
            `got ${value.dtype} with ${value.shape?.length}`,
        );
      const numbers = [0, 0, count(value.shape), value.itemSize, value.address, ...value.shape, ...value.strides];
      for (const number of numbers) {
        view.setUint32(slot, number, true);
        view.setUint32(slot + 4, 0, true);
        slot += SLOT;
      }
      return slot;
    }
    if (type === "float64") view.setFloat64(slot, value, true);
    else view.setBigInt64(slot, BigInt(value), true);
    return slot + SLOT;
  }

  /** Read a result; return it and the next slot. */
  take(view, slot, type) {
    if (type === "none") return [null, slot];
    if (Array.isArray(type)) {
      /** @type {any[]} */
      const values = [];
      for (const part of type) {
        const [value, next] = this.take(view, slot, part);
        values.push(value);
        slot = next;
      }
      return [values, slot];
    }
    if (type.dtype) {
      const address = view.getUint32(slot + 4 * SLOT, true);
      const lengthOf = (_, axis) => Number(view.getBigInt64(slot + (5 + axis) * SLOT, true));
      const shape = Array.from({ length: type.dimensions }, lengthOf);
      return [this.values({ dtype: type.dtype, address, shape }).slice(), slot + (5 + 2 * type.dimensions) * SLOT];
    }
    return [type === "float64" ? view.getFloat64(slot, true) : Number(view.getBigInt64(slot, true)), slot + SLOT];
  }
}

/** Number of items of a shape. */
function count(shape) {
  return shape.reduce((product, length) => product * length, 1);
}

function mapped(object, change) {
  return Object.fromEntries(Object.entries(object).map(([name, value]) => [name, change(value)]));
}
