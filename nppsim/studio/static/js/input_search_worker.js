/* Worker that searches for better inputs (``InputSearch``).  It receives the request with the compiled modules and the
 * level, and posts {tried, best, gain} repeatedly, until it is terminated; {error} if it fails. */

import { Game } from "../../../wasm/game.js";
import { Kernels } from "../../../wasm/kernels.js";
import { compileLevel } from "../../../wasm/level.js";
import { InputSearch } from "./input_search.js";

const BATCH_MS = 50;

self.onmessage = ({ data: { modules, level, ...request } }) => {
  try {
    const game = new Game(modules.game, compileLevel(new Kernels(modules.game), level));
    const search = new InputSearch(game, /** @type {any} */ (request));
    const work = () => {
      const end = performance.now() + BATCH_MS;
      do for (const gain of search.run(20)) self.postMessage({ gain, tried: search.tried, best: gain.value });
      while (performance.now() < end);
      self.postMessage({ tried: search.tried, best: search.best.value });
      setTimeout(work);
    };
    self.postMessage({ tried: 0, best: search.best.value });
    work();
  } catch (error) {
    self.postMessage({ error: error.message });
  }
};
