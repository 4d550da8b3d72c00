/* node wasm_calls.mjs BINARIES MODULE FOLDER
 *
 * Make the calls in FOLDER/calls.json with BINARIES/MODULE.wasm; write FOLDER/out.bin and FOLDER/results.json.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { Kernels, compileModule } from "../../nppsim/wasm/kernels.js";

const [binaries, name, folder] = process.argv.slice(2);
const description = JSON.parse(readFileSync(`${binaries}/interface.json`));
const kernels = new Kernels(await compileModule(readFileSync(`${binaries}/${name}.wasm`), description, name));
const { calls, repeats } = JSON.parse(readFileSync(`${folder}/calls.json`));
const blocks = readFileSync(`${folder}/in.bin`);
const out = Buffer.alloc(blocks.length);
const results = [];
const milliseconds = []; // shortest time of each call

/** Replace the descriptions of arrays in an argument by arrays in the module's memory. */
function place(value, addresses) {
  if (typeof value !== "object") return value;
  if (value.block === undefined)
    return Object.fromEntries(Object.entries(value).map(([key, part]) => [key, place(part, addresses)]));
  return { ...value, address: addresses[value.block] + value.offset, itemSize: kernels.itemSize(value.dtype) };
}

for (const { entry, given, sizes, start } of calls) {
  const mark = kernels.mark();
  const addresses = sizes.map((size) => kernels.exports.allocate(size));
  const view = () => new Uint8Array(kernels.exports.memory.buffer);
  const fill = () => {
    let at = start;
    sizes.forEach((size, i) => {
      view().set(blocks.subarray(at, at + size), addresses[i]);
      at += size;
    });
  };
  const placed = place(given, addresses);
  let [result, shortest] = [null, Infinity];
  for (let i = 0; i < repeats; i++) {
    fill();
    const before = performance.now();
    result = kernels.call(entry, placed);
    shortest = Math.min(shortest, performance.now() - before);
  }
  let at = start;
  sizes.forEach((size, i) => {
    out.set(view().subarray(addresses[i], addresses[i] + size), at);
    at += size;
  });
  milliseconds.push(shortest);
  results.push(ArrayBuffer.isView(result) ? Array.from(result, Number) : result);
  kernels.release(mark);
}
writeFileSync(`${folder}/out.bin`, out);
writeFileSync(`${folder}/results.json`, JSON.stringify({ results, milliseconds }));
