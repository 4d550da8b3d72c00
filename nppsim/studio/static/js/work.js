/* Work of agents and the planner, in a worker per request.  The page compiles each module of kernels once; its workers
 * share the machine code.
 */

import { loadModule } from "../../../wasm/kernels.js";

/**
 * Start a worker and yield its messages until it posts {done} or {error}.  Ends with an AbortError after an abort.
 * @param {"agent" | "planner"} kind - of the worker, nppsim/wasm/KIND_worker.js
 * @param {Record<string, any>} request - what the worker receives, without the modules
 * @param {AbortSignal} signal
 * @returns {AsyncGenerator<Record<string, any>>}
 */
export async function* messagesOf(kind, request, signal) {
  const [game, own] = await Promise.all([loadModule("game"), loadModule(kind)]);
  signal.throwIfAborted();
  const worker = new Worker(new URL(`../../../wasm/${kind}_worker.js`, import.meta.url), { type: "module" });
  const received = [];
  let wake = () => {};
  const receive = (message) => {
    received.push(message);
    wake();
  };
  worker.onmessage = ({ data }) => receive(data);
  worker.onerror = ({ message }) => receive({ error: `the ${kind} failed: ${message}` });
  const abort = () => wake();
  signal.addEventListener("abort", abort);
  try {
    worker.postMessage({ ...request, modules: { game, [kind]: own } });
    for (;;) {
      signal.throwIfAborted();
      const message = received.shift();
      if (message?.error) throw new Error(message.error);
      if (message?.done) return;
      if (message) yield message;
      else await new Promise((resolve) => (wake = () => resolve(null)));
    }
  } finally {
    signal.removeEventListener("abort", abort);
    worker.terminate();
  }
}
