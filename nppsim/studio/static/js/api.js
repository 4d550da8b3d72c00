/* The server: requests and sockets with the token of this page's address.  The protocol is in docs/lab/studio.md.
 *
 *     const level = await get("levels/" + id);
 *     const answer = await post("recordings/3/demonstration");
 *     const socket = new Socket("play");
 *     const { frame } = await socket.ask({ start: id });
 */

const MIB = 1 << 20;
const MOST_BYTES = 4 * MIB; // of a file, as nppsim/studio/security.py has it
const POLL_MS = 600;
const TRY_LATER = 1013; // why a socket is closed: too many of them
let token = new URLSearchParams(location.search).get("token") ?? "";

/** What the server refused or could not do.  status: of HTTP; 0 where there was no answer at all. */
export class ApiError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** Go on with the token of an address that a later start of the studio printed, or with a token. */
export function useAddress(text) {
  token = /token=([\w-]+)/.exec(text)?.[1] ?? text.trim();
  history.replaceState(null, "", `?${new URLSearchParams({ token })}${location.hash}`);
}

/** The JSON at an address below /api/. */
export function get(path) {
  return request("GET", path);
}

/** Call put(text) with the progress each time the studio is found compiling, until the returned function is called. */
export function whileCompiling(put) {
  let timer = null;
  const look = async () => {
    const { compiled } = await get("state").catch(() => ({ compiled: null })); // what waits reports the error
    if (timer === null) return;
    if (compiled !== null) put(`Compiling for this machine, once per version: ${compiled} functions so far. This takes one to two minutes.`);
    timer = setTimeout(look, POLL_MS);
  };
  timer = setTimeout(look, POLL_MS);
  return () => {
    clearTimeout(timer);
    timer = null;
  };
}

/** Send JSON, or bytes, to an address below /api/; gives the JSON of the answer. */
export function post(path, body = {}) {
  return request("POST", path, JSON.stringify(body), { "Content-Type": "application/json" });
}

/** Remove what an address below /api/ names. */
export function remove(path) {
  return request("DELETE", path);
}

/** Open a file (of an input or a drop): {level: id, levels: their number, category, run: run document or null, warnings}. */
export async function openFile(file) {
  if (file.size > MOST_BYTES) throw new ApiError(`${file.name} has ${(file.size / MIB).toFixed(1)} MB; at most ${MOST_BYTES / MIB} MB are opened here: start the studio with --levels and its name`, 413);
  const data = await file.arrayBuffer().catch(() => {
    throw new ApiError(`${file.name} cannot be read: drop files, not folders`, 400);
  });
  return request("POST", "open", data, { "X-File-Name": encodeURIComponent(file.name) });
}

/** Save what an address below /api/ gives as a file with the name that the server sends. */
export async function download(path) {
  const answer = await ask("GET", path);
  const name = /filename="([^"]+)"/.exec(answer.headers.get("Content-Disposition") ?? "")?.[1] ?? "file";
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await answer.blob());
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000); // the browser reads it after the click
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
  const reply = await answer.json().catch(() => ({})); // a crash of the server has no JSON
  throw new ApiError(reply.error ?? `the studio failed (${answer.status}); its terminal says why`, answer.status);
}

/** A socket below /ws/ whose messages are JSON.  onclose: called when it ends without having been closed here.
 *  onmessage: receives messages that answer no request. */
export class Socket {
  constructor(path) {
    this.waiting = []; // those who asked, in order
    this.onclose = this.onmessage = () => {};
    const query = new URLSearchParams({ token });
    this.socket = new WebSocket(`ws://${location.host}/ws/${path}?${query}`);
    this.opened = new Promise((resolve, reject) => {
      this.socket.onopen = resolve;
      this.refuse = reject;
    });
    this.opened.catch(() => {}); // reported to callers, and by onclose
    this.socket.onmessage = ({ data }) => this.receive(JSON.parse(data));
    this.socket.onclose = ({ code, reason }) => this.end(code, reason);
  }

  get isOpen() {
    return this.socket.readyState === WebSocket.OPEN;
  }

  /** Send a message and give its answer: the next one that comes.  Rejects with the server's error. */
  async ask(message) {
    await this.opened;
    if (!this.isOpen) throw new ApiError("the connection to the studio has ended", 0);
    const answer = new Promise((resolve, reject) => this.waiting.push({ resolve, reject }));
    this.socket.send(JSON.stringify(message));
    return answer;
  }

  /** Send a message that has no answer of its own. */
  send(message) {
    this.opened.then(() => this.isOpen && this.socket.send(JSON.stringify(message)), () => {}); // reported by onclose
  }

  receive(message) {
    const asker = this.waiting.shift();
    if (!asker) this.onmessage(message);
    else if ("error" in message) asker.reject(new ApiError(message.error, 400));
    else asker.resolve(message);
  }

  /** End it; the server frees what it has for it. */
  close() {
    this.closed = true;
    this.socket.close();
  }

  end(code, reason) {
    const busy = code === TRY_LATER;
    const error = busy ? new ApiError(reason, code) : new ApiError("the connection to the studio has ended", 0);
    this.refuse(error);
    for (const { reject } of this.waiting.splice(0)) reject(error);
    if (!this.closed) {
      if (!busy) document.dispatchEvent(new Event("studiolost"));
      this.onclose();
    }
  }
}
