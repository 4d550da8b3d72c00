/* What the scripts of this folder use of Node.js, for Chromium (chromium.py).  Files come from and go to its server. */
/* global XMLHttpRequest */
import { sha256 } from "../../nppsim/wasm/sha256.js";

const PART = 32 << 20; // bytes

const { args, input } = await (await fetch("/request")).json();

class Buffer extends Uint8Array {
  static from(data, second, length) {
    if (second === "base64") data = atob(data);
    if (typeof data === "string") return super.from(data, (letter) => letter.charCodeAt(0));
    return data instanceof ArrayBuffer ? new Buffer(data, second, length) : super.from(data);
  }

  static alloc(size) {
    return new Buffer(size);
  }

  toString(encoding) {
    if (encoding !== "base64") return new TextDecoder().decode(this);
    let text = "";
    for (let at = 0; at < this.length; at += 8192) text += String.fromCharCode(...this.subarray(at, at + 8192));
    return btoa(text);
  }
}

/** File descriptor 0 is the standard input. */
export function readFileSync(path, encoding) {
  if (path === 0) return input;
  const request = new XMLHttpRequest();
  request.open("GET", path, false);
  request.overrideMimeType("text/plain; charset=x-user-defined");
  request.send();
  const bytes = new Buffer(request.responseText.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = request.responseText.charCodeAt(i); // the low 8 bits
  return encoding ? bytes.toString() : bytes;
}

/** Playwright receives each request's body as text, which Node.js limits to 512 MB; so large files are sent in parts. */
export function writeFileSync(path, data) {
  const bytes = typeof data === "string" ? new TextEncoder().encode(data) : data;
  for (let at = 0; at === 0 || at < bytes.length; at += PART) {
    const request = new XMLHttpRequest();
    request.open(at ? "POST" : "PUT", path, false);
    request.send(bytes.subarray(at, at + PART));
  }
}

export const basename = (path) => path.split("/").pop();

export function createHash() {
  const parts = [];
  const bytes = (data) => (typeof data === "string" ? new TextEncoder().encode(data) : data);
  const hash = {
    update(data) {
      for (const byte of bytes(data)) parts.push(byte); // a spread would exceed the stack with large arrays
      return hash;
    },
    digest: () => sha256(parts),
  };
  return hash;
}

Object.assign(globalThis, { Buffer, process: { argv: ["chromium", ...args] } });
