/* Worker that makes one search of the planner (``findRun``).  It receives the request, and posts {simulated, best}
 * repeatedly, then {answer} and {done}, or {error}.  best: {inputs, gold} of a run that is better than those posted
 * before, or null.
 */

import { findRun } from "./planner.js";

const REPORT_MS = 100;

self.onmessage = async ({ data: request }) => {
  let [reported, posted] = [0, null];
  const progress = (simulated, run) => {
    const now = performance.now();
    const isBetter = run && run.inputs !== posted;
    if (now - reported < REPORT_MS && !isBetter) return;
    reported = now;
    if (isBetter) posted = run.inputs;
    self.postMessage({ simulated, best: isBetter ? { inputs: run.inputs, gold: run.gold } : null });
  };
  try {
    self.postMessage({ answer: await findRun(request, progress) });
    self.postMessage({ done: true });
  } catch (error) {
    self.postMessage({ error: error.message });
  }
};
