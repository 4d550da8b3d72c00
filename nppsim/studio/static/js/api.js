/* Client of the server: requests and sockets with the token from the page's address (protocol: docs/lab/studio.md).
 *
 *     const level = await get("levels/" + id);
 *     const answer = await post("recordings/3/demonstration");
 *     const socket = new Socket("play");
 *     const { frame } = await socket.ask({ start: id });
 */

const MIB = 1 << 20;
const MOST_BYTES = 4 * MIB; // limit on files, as in nppsim/studio/security.py
const POLL_MS = 600;
const TRY_LATER = 1013; // WebSocket close code: too many open sockets
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

async function request(method, path, body, headers) {
  return (await ask(method, path, body, headers)).json();
}

async function ask(method, path, body, headers = {}) {
  let answer;
  try {
    answer = await fetch("/api/" + path, { method, body, headers: { ...headers, "X-Studio-Token": token } });
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
