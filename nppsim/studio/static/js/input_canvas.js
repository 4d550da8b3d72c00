/* Piano roll: the pressed keys of a run, one column per frame and a lane per key.
 *
 * Pointer: a press toggles a key, dragging in a lane paints, dragging in the ruler selects frames, dragging a selection
 * moves it.
 */

import { element } from "./elements.js";
import { INPUTS } from "./input_byte.js";
import { BREAKPOINT } from "./input_text.js";
import { coloursOf, onThemeChange } from "./pen.js";

const [RULER, LANE, LABELS] = [20, 24, 46]; // px: heights of the ruler and of a lane, width of the labels
const [LEAST, MOST] = [2, 24]; // px per frame

export class InputCanvas {
  /** @type {any} */
  drag; // {lane, from, to, down} or {from, to, moves} while the pointer is pressed

  /** on: {paint(lane, from, to, down), select(from, to), move(to), seek(frame)}; frames are numbered from 0. */
  constructor(root, on) {
    this.on = on;
    this.width = 12;
    this.first = 0;
    this.inputs = new Uint8Array();
    this.cursor = 0;
    this.selection = null;
    this.played = 0;
    this.ended = false;
    this.markers = [];
    this.canvas = element("canvas", { tabindex: 0, role: "application", "aria-label": "Keys per frame" });
    root.append(this.canvas);
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(root);
    this.endTheme = onThemeChange(() => this.draw());
    this.canvas.addEventListener("pointerdown", (event) => this.press(event));
    this.canvas.addEventListener("pointermove", (event) => this.drag && this.pull(event));
    for (const name of ["pointerup", "pointercancel"]) this.canvas.addEventListener(name, () => this.release());
    this.canvas.addEventListener(
      "wheel",
      (event) => {
        event.preventDefault();
        if (event.ctrlKey) this.zoom(Math.exp(-event.deltaY / 300), event.offsetX);
        else this.scroll((event.deltaX || event.deltaY) / this.width);
      },
      { passive: false },
    );
  }

  destroy() {
    this.observer.disconnect();
    this.endTheme();
  }

  /** markers: [{frame, note}].  played: number of frames until the run ends, by its inputs or (ended) by a win or
   *  death. */
  show(state) {
    Object.assign(this, state);
    this.draw();
  }

  get visible() {
    return (this.canvas.clientWidth - LABELS) / this.width;
  }

  scroll(frames) {
    this.first = Math.max(0, Math.min(this.first + frames, this.inputs.length));
    this.draw();
  }

  zoom(factor, x = LABELS) {
    const at = this.frameAt(x);
    this.width = Math.min(Math.max(this.width * factor, LEAST), MOST);
    this.scroll(at - this.frameAt(x));
  }

  /** Scroll so that a frame is visible. */
  reveal(frame) {
    if (frame < this.first) this.scroll(frame - this.first - 2);
    else if (frame > this.first + this.visible - 3) this.scroll(frame - this.first - this.visible + 3);
  }

  frameAt(x) {
    return this.first + (x - LABELS) / this.width;
  }

  press(event) {
    if (event.button || event.offsetX < LABELS) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.canvas.focus();
    const frame = Math.max(Math.floor(this.frameAt(event.offsetX)), 0);
    const lane = Math.floor((event.offsetY - RULER) / LANE);
    const [from, to] = this.selection ?? [1, 0];
    if (lane < 0) this.drag = { from: frame, to: frame, moves: frame >= from && frame <= to };
    else if (INPUTS[lane]) this.drag = { lane, from: frame, to: frame, down: !(this.inputs[frame] & INPUTS[lane].bit) };
    this.draw();
  }

  pull(event) {
    this.drag.to = Math.max(Math.floor(this.frameAt(event.offsetX)), 0);
    this.reveal(this.drag.to);
    this.draw();
  }

  release() {
    const { drag } = this;
    if (!drag) return;
    this.drag = null;
    const [low, high] = [Math.min(drag.from, drag.to), Math.max(drag.from, drag.to)];
    if (drag.lane !== undefined) this.on.paint(drag.lane, low, high, drag.down);
    else if (drag.moves && drag.to !== drag.from) this.on.move(drag.to - drag.from);
    else if (low === high) this.on.seek(low);
    else this.on.select(low, high);
    this.draw();
  }

  draw() {
    const { canvas, inputs, drag } = this;
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (!width) return;
    [canvas.width, canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)];
    const c = canvas.getContext("2d");
    const [text, faint] = [getComputedStyle(canvas).color, coloursOf(canvas).muted];
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    const x = (frame) => LABELS + (frame - this.first) * this.width;
    const bottom = RULER + INPUTS.length * LANE;
    const last = Math.min(inputs.length, Math.ceil(this.first + this.visible) + 1);
    c.font = "11px system-ui, sans-serif";
    c.textBaseline = "middle";
    const fill = (colour, opacity, ...box) => {
      c.globalAlpha = opacity;
      c.fillStyle = colour;
      c.fillRect(...box);
      c.globalAlpha = 1;
    };
    const selecting = drag && drag.lane === undefined && !drag.moves;
    const shift = drag?.moves ? drag.to - drag.from : 0;
    const range = selecting
      ? [Math.min(drag.from, drag.to), Math.max(drag.from, drag.to)]
      : this.selection?.map((frame) => frame + shift);
    if (range) fill(text, 0.18, x(range[0]), 0, (range[1] - range[0] + 1) * this.width, bottom);
    const tick = this.width >= 8 ? 10 : this.width >= 4 ? 30 : 60;
    for (let f = Math.max(Math.floor(this.first), 0); f <= last; f++) {
      if (f % tick === 0) {
        fill(faint, 0.5, x(f), 0, 1, bottom);
        c.fillStyle = faint;
        c.fillText(String(f), x(f) + 3, RULER / 2);
      }
      if (f >= inputs.length) continue;
      INPUTS.forEach(({ bit }, lane) => {
        const painted = drag?.lane === lane && f >= Math.min(drag.from, drag.to) && f <= Math.max(drag.from, drag.to);
        const down = painted ? drag.down : inputs[f] & bit;
        fill(
          down ? text : faint,
          down ? (f < this.played || !this.ended ? 0.9 : 0.3) : 0.12,
          x(f) + 0.5,
          RULER + lane * LANE + 2,
          Math.max(this.width - 1, 1),
          LANE - 4,
        );
      });
    }
    for (const { frame, note } of this.markers) {
      const colour = note === BREAKPOINT ? coloursOf(canvas).red : coloursOf(canvas).blue;
      fill(colour, 1, x(frame), 0, 3, RULER - 2);
      fill(colour, 0.5, x(frame), RULER - 2, 1, bottom - RULER);
    }
    fill(text, 1, x(this.cursor), 0, 2, bottom);
    if (this.ended) fill(faint, 1, x(this.played), 0, 2, bottom);
    c.clearRect(0, 0, LABELS, height);
    c.fillStyle = text;
    INPUTS.forEach(({ action }, lane) => c.fillText(action, 4, RULER + (lane + 0.5) * LANE));
  }
}
