/* Worker that makes one search of the planner (``findRun``).  It receives the request, and posts {simulated}
 * repeatedly, then {answer} or {error}.
 */

import { findRun } from "./planner.js";

const REPORT_MS = 100;

self.onmessage = async ({ data: request }) => {
  let reported = 0;
  const progress = (simulated) => {
    const now = performance.now();
    if (now - reported < REPORT_MS) return;
    reported = now;
    self.postMessage({ simulated });
  };
  try {
    self.postMessage({ answer: await findRun(request, progress) });
  } catch (error) {
    self.postMessage({ error: error.message });
  }
};
