/* Script of the pages that nppsim/studio/page.py writes: creates a player after each data element once it becomes
 * visible. */

import { Kernels } from "../../../wasm/kernels.js";
import { levelFromBytes } from "../../../wasm/level.js";
import { bytes } from "./arrays.js";
import { levelDocument } from "./documents.js";
import { div } from "./elements.js";
import { Player } from "./player.js";
import { Recording } from "./recording.js";

const contentOf = (script) => JSON.parse(script.textContent);

async function loadEngine() {
  const { binary, ...interfaces } = contentOf(document.querySelector("script.kernels"));
  const data = new Blob([bytes(binary)]).stream().pipeThrough(new DecompressionStream("gzip"));
  const module = { module: await WebAssembly.compile(await new Response(data).arrayBuffer()), ...interfaces };
  return { module, kernels: new Kernels(module) };
}

const engine = loadEngine();

async function show(root, { level: about, runs }) {
  const level = levelDocument(await engine, levelFromBytes(bytes(about.map)), about);
  const recordings = runs.map(({ label, inputs }) => new Recording(level, { label, inputs: bytes(inputs) }));
  const player = new Player(root, { level, runs: recordings });
  if (document.activeElement === document.body) player.canvas.focus({ preventScroll: true }); // for its keys
}

const seen = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (!isIntersecting) continue;
    seen.unobserve(target);
    show(target, contentOf(target.previousElementSibling)).catch((error) => target.replaceChildren(error.message));
  }
});
for (const data of document.querySelectorAll("script.runs")) {
  const root = div("player");
  data.after(root);
  seen.observe(root);
}
