/* Data of the studio: of its server, or of the files of an exported site (protocol: docs/lab/studio.md).
 *
 *     const level = await get("levels/" + id);
 *     const { demonstrations } = await features(); // what this studio can do
 *
 * A site answers requests of get from files; nothing is posted there.
 */

const POLL_MS = 600;
export const ROOT = new URL("../../../", import.meta.url); // of the server or the site
export const isSite = document.documentElement.dataset.site !== undefined;
export const TOKEN = "nppsim.token"; // in localStorage: token that the studio accepted last, for further tabs
let token = new URLSearchParams(location.search).get("token") ?? localStorage.getItem(TOKEN) ?? "";

/** A request failed.  status: HTTP status, or 0 if the server did not answer. */
export class ApiError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** Use a new token.  text: the token, or an address that contains it. */
export function useAddress(text) {
  token = /token=([\w-]+)/.exec(text)?.[1] ?? text.trim();
  history.replaceState(null, "", `?${new URLSearchParams({ token })}${location.hash}`);
}

/** Return the JSON at a path below /api/. */
export function get(path) {
  return request("GET", path);
}

/** Return what the studio can do besides playing: {demonstrations: write them, folders: save levels, follows: display
 *  an experiment}. */
export function features() {
  return get("state");
}

/** Poll the studio and call put(text) with the progress while it compiles, until the returned function is called. */
export function whileCompiling(put) {
  let ended = false;
  const poll = async () => {
    const { compiled } = await get("state").catch(() => ({ compiled: null })); // the waiting request reports the error
    if (ended) return;
    if (compiled !== null)
      put(`Compiling for this machine, once per version: ${compiled} functions so far. This takes one to two minutes.`);
    timer = setTimeout(poll, POLL_MS);
  };
  let timer = setTimeout(poll, POLL_MS);
  return () => {
    clearTimeout(timer);
    ended = true;
  };
}

/** Post JSON to a path below /api/; return the JSON of the answer. */
export function post(path, body = {}) {
  return request("POST", path, JSON.stringify(body), { "Content-Type": "application/json" });
}

/** Return the bytes at a path below /api/. */
export async function getBytes(path) {
  if (!isSite) return (await ask("GET", path)).arrayBuffer();
  const packed = await (await askSite(path, ".gz")).blob();
  return new Response(packed.stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
}

/** Post JSON to a path below /api/; yield the JSON of each line of the answer as it arrives. */
export async function* postForLines(path, body, signal) {
  const answer = await ask("POST", path, JSON.stringify(body), { "Content-Type": "application/json" }, signal);
  if (!answer.body) return;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) yield JSON.parse(line);
  }
}

async function request(method, path, body, headers) {
  return (await ask(method, path, body, headers)).json();
}

/** @type {(method: string, path: string, body?: string, headers?: {}, signal?: AbortSignal) => Promise<Response>} */
async function ask(method, path, body, headers = {}, signal) {
  if (isSite) return askSite(path);
  const all = { ...headers, "X-Studio-Token": token };
  let answer;
  try {
    answer = await fetch(new URL(`api/${path}`, ROOT), { method, body, signal, headers: all });
  } catch (error) {
    if (signal?.aborted) throw error;
    document.dispatchEvent(new Event("studiolost"));
    throw new ApiError("the studio does not answer", 0);
  }
  if (answer.ok) {
    localStorage.setItem(TOKEN, token);
    return answer;
  }
  if (answer.status === 401 && adoptToken()) return ask(method, path, body, headers, signal);
  if (answer.status === 401) document.dispatchEvent(new Event("studiolost"));
  const reply = await answer.json().catch(() => ({})); // an internal error has no JSON
  throw new ApiError(
    reply.error ?? `the studio failed (${answer.status}); see its terminal for the reason`,
    answer.status,
  );
}

/* Use the token of another tab; return whether it differs. */
function adoptToken() {
  const before = token;
  token = localStorage.getItem(TOKEN) ?? token;
  return token !== before;
}

async function askSite(path, suffix = ".json") {
  const answer = await fetch(new URL(`data/${path.replaceAll("/", "-")}${suffix}`, ROOT)).catch(() => null);
  if (answer?.ok) return answer;
  throw new ApiError(answer ? "This level or run is not here; open its file or link again." : "You are offline.", 404);
}

/** Open a view; if that fails, destroy it, because its listeners would stay. */
export async function opened(view, ...choice) {
  try {
    await view.open(...choice);
  } catch (error) {
    view.destroy();
    throw error;
  }
}
