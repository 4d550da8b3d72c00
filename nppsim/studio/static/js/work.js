/* Work of agents, the planner and the search for inputs, in a worker per request.  The page compiles each module of
 * kernels once; its workers share the machine code.
 */

import { loadModule } from "../../../wasm/kernels.js";

const WASM = "../../../wasm/";
/** Files of the workers, and the modules of kernels that they need.
 *  @type {Record<string, [string, ("game" | "agent" | "planner")[]]>} */
const WORKERS = {
  agent: [`${WASM}agent_worker.js`, ["game", "agent"]],
  planner: [`${WASM}planner_worker.js`, ["game", "planner"]],
  "input search": ["./input_search_worker.js", ["game"]],
};

/**
 * Start a worker and yield its messages until it posts {done} or {error}.  Ends with an AbortError after an abort.
 * @param {string} kind - name in WORKERS
 * @param {Record<string, any>} request - what the worker receives, without the modules
 * @param {AbortSignal} signal
 * @returns {AsyncGenerator<Record<string, any>>}
 */
export async function* messagesOf(kind, request, signal) {
  const [file, names] = WORKERS[kind];
  const modules = Object.fromEntries(await Promise.all(names.map(async (name) => [name, await loadModule(name)])));
  signal.throwIfAborted();
  const worker = new Worker(new URL(file, import.meta.url), { type: "module" });
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
    worker.postMessage({ ...request, modules });
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
