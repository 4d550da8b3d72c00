/* Data of the studio: of its server, or of the files of an exported site (protocol: docs/lab/studio.md).
 *
 *     const level = await get("levels/" + id);
 *     const { demonstrations } = await features(); // what this studio can do
 *     const socket = new Socket("watch");
 *
 * A site answers requests of get from files; it has no sockets, and post is not called there.
 */

const POLL_MS = 600;
const TRY_LATER = 1013; // WebSocket close code: too many open sockets
export const ROOT = new URL("../../../", import.meta.url); // of the server or the site
export const isSite = document.documentElement.dataset.site !== undefined;
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

/** Return what the studio can do besides playing: {demonstrations: write them, folders: save levels, follows: display an
 *  experiment}. */
export function features() {
  return get("state");
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

async function request(method, path, body, headers) {
  return (await ask(method, path, body, headers)).json();
}

async function ask(method, path, body, headers = {}) {
  if (isSite) return askSite(path);
  let answer;
  try {
    answer = await fetch(new URL(`api/${path}`, ROOT), { method, body, headers: { ...headers, "X-Studio-Token": token } });
  } catch {
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

async function askSite(path) {
  const answer = await fetch(new URL(`data/${path.replaceAll("/", "-")}.json`, ROOT)).catch(() => null);
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

/** A socket below /ws/ with JSON messages.  onclose: called with an error when the connection ends
 *  without a call of close.  onmessage: called with messages that are not answers to ask. */
export class Socket {
  constructor(path) {
    this.waiting = []; // unanswered requests, in order
    this.onclose = this.onmessage = (_) => {};
    const query = new URLSearchParams({ token });
    this.socket = new WebSocket(`ws://${location.host}/ws/${path}?${query}`);
    this.opened = new Promise((resolve, reject) => {
      this.socket.onopen = resolve;
      this.rejectOpened = reject;
    });
    this.opened.catch(() => {}); // callers and onclose handle the error
    this.socket.onmessage = ({ data }) => this.receive(JSON.parse(data));
    this.socket.onclose = ({ code, reason }) => this.end(code, reason);
  }

  get isOpen() {
    return this.socket.readyState === WebSocket.OPEN;
  }

  /** Send a message and return its answer.  Rejects with the server's error. */
  async ask(message) {
    await this.opened;
    if (!this.isOpen) throw new ApiError("the connection to the studio has ended", 0);
    const answer = new Promise((resolve, reject) => this.waiting.push({ resolve, reject }));
    this.socket.send(JSON.stringify(message));
    return answer;
  }

  /** Send a message without waiting for an answer. */
  send(message) {
    this.opened.then(
      () => this.isOpen && this.socket.send(JSON.stringify(message)),
      () => {},
    ); // reported by onclose
  }

  receive(message) {
    const asked = this.waiting.shift();
    if (!asked) this.onmessage(message);
    else if ("error" in message) asked.reject(new ApiError(message.error, 400));
    else asked.resolve(message);
  }

  close() {
    this.closed = true;
    this.socket.close();
  }

  end(code, reason) {
    const busy = code === TRY_LATER;
    const error = busy ? new ApiError(reason, code) : new ApiError("the connection to the studio has ended", 0);
    this.rejectOpened(error);
    for (const { reject } of this.waiting.splice(0)) reject(error);
    if (!this.closed) {
      if (!busy) document.dispatchEvent(new Event("studiolost"));
      this.onclose(error);
    }
  }
}
