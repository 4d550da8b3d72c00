/* Timeline under a player, with a lane per run: pressed keys, the end, and where the run diverges from the followed
 * run.  Below the keys of live play: how many decisions are planned, dark where the agent thinks. */

import { element } from "./elements.js";
import { INPUTS } from "./input_byte.js";
import { coloursOf, onThemeChange } from "./pen.js";

const ROW = 5; // height of a row, px
const GAP = 6; // gap between lanes, px
const KEYS = INPUTS.length * ROW; // height of the rows of keys, px
const PLAN = 16; // height of the row of live play, px

export class Timeline {
  /** root: element to fill.  seek: called with the frame under the pressed pointer. */
  constructor(root, seek) {
    this.canvas = element("canvas");
    this.head = element("i");
    root.replaceChildren(this.canvas, this.head);
    this.runs = [];
    this.parted = [];
    this.frame = 0;
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(root);
    this.endTheme = onThemeChange(() => this.draw());
    const point = (event) => {
      if (event.buttons & 1) seek(Math.round((event.offsetX / this.canvas.clientWidth) * this.last));
    };
    this.canvas.addEventListener("pointerdown", (event) => {
      this.canvas.setPointerCapture(event.pointerId);
      point(event);
    });
    this.canvas.addEventListener("pointermove", point);
  }

  get last() {
    return Math.max(1, ...this.runs.map(({ recording }) => recording.frames));
  }

  destroy() {
    this.observer.disconnect();
    this.endTheme();
  }

  /** runs: runs of a player; those of live play have decisions, [{f, thinks, ahead}].
   *  parted: frame at which each run diverges from the followed one, or null. */
  show(runs, parted) {
    [this.runs, this.parted] = [runs, parted];
    this.canvas.style.height = `${this.top(runs.length)}px`;
    this.draw();
    this.seek(this.frame);
  }

  /** Return the top of a lane, px. */
  top(index) {
    const plans = this.runs.slice(0, index).filter(({ decisions }) => decisions).length;
    return GAP + index * (KEYS + GAP) + plans * PLAN;
  }

  seek(frame) {
    this.frame = frame;
    this.head.style.left = `${(100 * frame) / this.last}%`;
  }

  draw() {
    const { canvas } = this;
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (!width || !height) return;
    [canvas.width, canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)];
    const c = canvas.getContext("2d");
    const colours = coloursOf(canvas);
    c.setTransform(canvas.width / width, 0, 0, canvas.height / height, 0, 0);
    const x = (frame) => (frame / this.last) * width;
    this.runs.forEach(({ recording, colour, decisions }, i) => {
      const top = this.top(i);
      c.fillStyle = colour;
      if (decisions) drawPlan(c, x, top + KEYS, decisions, recording.frames);
      c.globalAlpha = 0.14;
      c.fillRect(0, top, x(recording.frames), KEYS);
      c.globalAlpha = 1;
      INPUTS.forEach(({ bit }, row) => {
        for (const [from, to] of stretches(recording.inputs, bit))
          c.fillRect(x(from), top + row * ROW + 1, Math.max(x(to) - x(from), 1), ROW - 1);
      });
      c.fillStyle = { won: colours.green, died: colours.red }[recording.outcome] ?? colours.muted;
      c.fillRect(Math.min(x(recording.frames), width - 3), top - 2, 3, KEYS + 4);
      if (this.parted[i] !== null && this.parted[i] !== undefined) mark(c, x(this.parted[i]), top, colours);
    });
  }
}

/** Draw the numbers of planned decisions of live play as bars, dark where the agent thinks. */
function drawPlan(c, x, top, decisions, frames) {
  const most = Math.max(1, ...decisions.map(({ ahead }) => ahead));
  decisions.forEach(({ f, thinks, ahead }, i) => {
    const height = (ahead / most) * (PLAN - 2);
    c.globalAlpha = thinks ? 1 : 0.35;
    const right = x(decisions[i + 1]?.f ?? frames);
    c.fillRect(x(f), top + PLAN - Math.max(height, thinks ? 2 : 0), right - x(f), Math.max(height, thinks ? 2 : 0));
  });
}

/** Draw a small triangle where a run diverges from the followed one. */
function mark(c, x, top, colours) {
  c.fillStyle = colours.ink;
  c.beginPath();
  c.moveTo(x - 4, top - 5);
  c.lineTo(x + 4, top - 5);
  c.lineTo(x, top + 1);
  c.fill();
  c.fillRect(x - 0.5, top, 1, KEYS);
}

/** Yield the intervals [from, to) of frames in which a key is down. */
function* stretches(inputs, bit) {
  /** @type {number | null} */
  let from = null;
  for (let f = 0; f <= inputs.length; f++) {
    const down = f < inputs.length && (inputs[f] & bit) !== 0;
    if (down && from === null) from = f;
    if (!down && from !== null) {
      yield [from, f];
      from = null;
    }
  }
}
