/* Input of the player: keyboard (configurable), gamepad, touch buttons.
 *
 *     const controls = new Controls((action) => ...); // called once per press of keys other than left, right, jump
 *     controls.sample()                               // returns the input byte of the next frame
 *
 * A press shorter than a frame counts for one frame, so no press is lost.
 */

import { takesKeys } from "./elements.js";
import { INPUTS } from "./input_byte.js";

const STORE = "nppsim.keys";
const BITS = Object.fromEntries(INPUTS.map(({ action, bit }) => [action, bit]));
/** Actions: name -> [description, default keys (KeyboardEvent.code)]. */
export const ACTIONS = {
  left: ["run left", ["ArrowLeft", "KeyA"]],
  right: ["run right", ["ArrowRight", "KeyD"]],
  jump: ["jump", ["Space", "ArrowUp", "KeyW", "ShiftLeft", "ShiftRight", "KeyZ"]],
  restart: ["restart immediately", ["KeyR", "Enter"]],
  pause: ["pause, continue", ["KeyP", "Escape"]],
  slower: ["slow motion", ["KeyQ"]],
  step: ["one frame forward, with the pressed keys", ["Period"]],
  back: ["one frame back", ["Comma"]],
  rewind: ["rewind while pressed", ["Backspace"]],
  mark: ["practise from here, or from the spawn again", ["KeyM"]],
  store: ["store this run", ["KeyK"]],
  next: ["next level", ["KeyN"]],
  view: ["closer view that follows the ninja, or the whole level", ["KeyV"]],
};
const LASTING = [...Object.keys(BITS), "rewind"]; // actions that last while the key is down
// Standard gamepad: button -> action.
const PAD = {
  0: "jump",
  1: "jump",
  3: "restart",
  4: "rewind",
  5: "slower",
  6: "view",
  8: "store",
  9: "pause",
  14: "left",
  15: "right",
};
const STICK = 0.4; // threshold of the stick's deflection
// Keys that a focused element handles itself.
const USES = {
  button: /^(Space|Enter)$/,
  summary: /^(Space|Enter)$/,
  a: /^Enter$/,
  input: /^(Space|Arrow\w+|Home|End)$/,
};

export class Controls {
  constructor(act) {
    this.act = act;
    this.bindings = storedBindings();
    this.down = new Map(); // action -> set of sources that hold it: key codes, touch and pad buttons
    this.tapped = new Set(); // actions pressed since the last sample
    this.padDown = new Set();
    this.listeners = Object.entries({
      keydown: (event) => this.keyDown(event),
      keyup: (event) => this.release(event.code),
      blur: () => this.down.clear(),
    });
    this.listeners.forEach(([name, listener]) => addEventListener(name, listener));
  }

  destroy() {
    this.listeners.forEach(([name, listener]) => removeEventListener(name, listener));
  }

  holds(action) {
    return (this.down.get(action)?.size ?? 0) > 0;
  }

  sample() {
    this.readGamepads();
    let byte = 0;
    for (const [action, bit] of Object.entries(BITS)) if (this.holds(action) || this.tapped.has(action)) byte |= bit;
    this.tapped.clear();
    return byte;
  }

  /** True if left, right or jump is down or was pressed since the last sample. */
  get pressing() {
    return Object.keys(BITS).some((action) => this.holds(action) || this.tapped.has(action));
  }

  keyDown(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || takesKeys(event.target)) return;
    if (event.target instanceof Element && USES[event.target.localName]?.test(event.code)) return;
    const action = this.actionOf(event.code);
    if (!action) return;
    event.preventDefault();
    if (!event.repeat || action === "step" || action === "back") this.press(action, event.code);
  }

  /** Press an action.  by: source of the press, such as a key code. */
  press(action, by) {
    if (LASTING.includes(action)) {
      if (!this.down.has(action)) this.down.set(action, new Set());
      this.down.get(action).add(by);
      this.tapped.add(action);
    }
    if (!(action in BITS)) this.act(action);
  }

  /** Release all actions that a source holds. */
  release(by) {
    for (const holders of this.down.values()) holders.delete(by);
  }

  actionOf(code) {
    return Object.keys(ACTIONS).find((action) => this.bindings[action].includes(code));
  }

  readGamepads() {
    if (document.querySelector("dialog[open]")) return;
    const now = new Set();
    for (const pad of navigator.getGamepads()) {
      if (pad?.mapping !== "standard") continue;
      for (const [button, action] of Object.entries(PAD)) if (pad.buttons[button]?.pressed) now.add(action);
      if (pad.axes[0] < -STICK) now.add("left");
      if (pad.axes[0] > STICK) now.add("right");
    }
    for (const action of now) if (!this.padDown.has(action)) this.press(action, `pad ${action}`);
    for (const action of this.padDown) if (!now.has(action)) this.release(`pad ${action}`);
    this.padDown = now;
  }

  /** Bind a key to an action, instead of its present one; the bindings are stored in the browser. */
  bind(action, code) {
    for (const codes of Object.values(this.bindings)) if (codes.includes(code)) codes.splice(codes.indexOf(code), 1);
    this.bindings[action].push(code);
    this.store();
  }

  unbind(action, code) {
    this.bindings[action] = this.bindings[action].filter((one) => one !== code);
    this.store();
  }

  resetBindings() {
    localStorage.removeItem(STORE);
    this.bindings = storedBindings();
  }

  store() {
    localStorage.setItem(STORE, JSON.stringify(this.bindings));
  }
}

function storedBindings() {
  const bindings = Object.fromEntries(Object.entries(ACTIONS).map(([action, [, codes]]) => [action, [...codes]]));
  const stored = localStorage.getItem(STORE);
  return stored ? { ...bindings, ...JSON.parse(stored) } : bindings;
}

export function keyName(code) {
  const names = {
    ArrowLeft: "←",
    ArrowRight: "→",
    ArrowUp: "↑",
    ArrowDown: "↓",
    ShiftLeft: "left shift",
    ShiftRight: "right shift",
    Period: ".",
    Comma: ",",
    Backspace: "⌫",
    Enter: "↵",
    Escape: "esc",
  };
  return names[code] ?? code.replace(/^(Key|Digit)/, "").toLowerCase();
}
