/* Client of the server: requests with the token from the page's address (protocol: docs/lab/studio.md).
 *
 *     const level = await get("levels/" + id);
 *     const answer = await post("recordings/3/demonstration");
 */

const MIB = 1 << 20;
const MOST_BYTES = 4 * MIB; // limit on files, as in nppsim/studio/security.py
const POLL_MS = 600;
let token = new URLSearchParams(location.search).get("token") ?? "";

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

/** Poll the studio and call put(text) with the progress while it compiles, until the returned function is called. */
export function whileCompiling(put) {
  let timer = null;
  const poll = async () => {
    const { compiled } = await get("state").catch(() => ({ compiled: null })); // the waiting request reports the error
    if (timer === null) return;
    if (compiled !== null)
      put(`Compiling for this machine, once per version: ${compiled} functions so far. This takes one to two minutes.`);
    timer = setTimeout(poll, POLL_MS);
  };
  timer = setTimeout(poll, POLL_MS);
  return () => {
    clearTimeout(timer);
    timer = null;
  };
}

/** Post JSON to a path below /api/; return the JSON of the answer. */
export function post(path, body = {}) {
  return request("POST", path, JSON.stringify(body), { "Content-Type": "application/json" });
}

export function remove(path) {
  return request("DELETE", path);
}

/** Open a file in the studio; return {level: id, levels: number of levels, category, run: run document or null,
 *  warnings}. */
export async function openFile(file) {
  if (file.size > MOST_BYTES)
    throw new ApiError(
      `${file.name} has ${(file.size / MIB).toFixed(1)} MB; the limit is ${MOST_BYTES / MIB} MB: ` +
        "start the studio with --levels and the file's name",
      413,
    );
  const data = await file.arrayBuffer().catch(() => {
    throw new ApiError(`${file.name} cannot be read: drop files, not folders`, 400);
  });
  return request("POST", "open", data, { "X-File-Name": encodeURIComponent(file.name) });
}

/** Download a file from a path below /api/ under the name that the server sends; return the name. */
export async function download(path) {
  const answer = await ask("GET", path);
  const name = /filename="([^"]+)"/.exec(answer.headers.get("Content-Disposition") ?? "")?.[1] ?? "file";
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await answer.blob());
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000); // the browser reads the object after the click
  return name;
}

/** Return the bytes at a path below /api/. */
export async function getBytes(path) {
  return (await ask("GET", path)).arrayBuffer();
}

/** Post JSON to a path below /api/; yield the JSON of each line of the answer as it arrives. */
export async function* postForLines(path, body, signal) {
  const answer = await ask("POST", path, JSON.stringify(body), { "Content-Type": "application/json" }, signal);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) yield JSON.parse(line);
  }
}

async function request(method, path, body, headers) {
  return (await ask(method, path, body, headers)).json();
}

async function ask(method, path, body = undefined, headers = {}, signal = undefined) {
  let answer;
  try {
    answer = await fetch("/api/" + path, { method, body, signal, headers: { ...headers, "X-Studio-Token": token } });
  } catch (error) {
    if (signal?.aborted) throw error;
    document.dispatchEvent(new Event("studiolost"));
    throw new ApiError("the studio does not answer", 0);
  }
  if (answer.ok) return answer;
  if (answer.status === 401) document.dispatchEvent(new Event("studiolost"));
  const reply = await answer.json().catch(() => ({})); // an internal error has no JSON
  throw new ApiError(
    reply.error ?? `the studio failed (${answer.status}); see its terminal for the reason`,
    answer.status,
  );
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
