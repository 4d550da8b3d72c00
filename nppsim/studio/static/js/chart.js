/* A small line chart on a canvas.
 *
 *     const chart = new Chart(canvas, { pick: (x) => ... });
 *     chart.show({ lines: [{ x, y, colour, faint, steps }], marks: [{ x, text }], levels: ["simplest", ...] });
 *     chart.seek(120);                                      // moves the cursor
 */

import { onThemeChange } from "./pen.js";

const [LEFT, RIGHT, TOP, BOTTOM] = [44, 8, 8, 18]; // margins, px

/**
 * @typedef {{x: number[], y: (number | null)[], colour?: string, faint?: boolean, steps?: boolean}} Line
 * @typedef {{lines: Line[], marks: {x: number, text: string}[], levels?: string[], range?: number[]}} Shown
 */

export class Chart {
  /**
   * @param {any} canvas
   * @param {{pick?: (x: number) => void, axis?: boolean}} [options] - pick: called with the x under the pressed
   *   pointer.  axis: whether to label the x axis
   */
  constructor(canvas, { pick, axis = true } = {}) {
    this.canvas = canvas;
    this.axis = axis;
    /** @type {Shown} */
    this.shown = { lines: [], marks: [] };
    this.cursor = null;
    this.pointed = null;
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(canvas);
    this.endTheme = onThemeChange(() => this.draw());
    canvas.addEventListener("pointerleave", () => this.point(null));
    canvas.addEventListener("pointermove", (event) => {
      this.point(event.offsetX);
      if (pick && event.buttons & 1) pick(this.xAt(event.offsetX));
    });
    if (pick) canvas.addEventListener("pointerdown", (event) => pick(this.xAt(event.offsetX)));
  }

  destroy() {
    this.observer.disconnect();
    this.endTheme();
  }

  /** lines: arrays x and y of equal length, where null in y leaves a gap; colour, by default the page's accent colour.
   *  levels: labels of 0, 1, ... on the y axis.  range: [min, max] that the y axis must include. */
  show(shown) {
    this.shown = { marks: [], ...shown };
    this.draw();
  }

  seek(x) {
    this.cursor = x;
    this.draw();
  }

  point(px) {
    this.pointed = px;
    this.draw();
  }

  xAt(px) {
    const { x0, x1 } = this.bounds();
    return x0 + ((px - LEFT) / Math.max(this.canvas.clientWidth - LEFT - RIGHT, 1)) * (x1 - x0);
  }

  bounds() {
    const { lines, levels, range } = this.shown;
    let [x0, x1, y0, y1] = [Infinity, -Infinity, range?.[0] ?? Infinity, range?.[1] ?? -Infinity];
    for (const { x, y } of lines) {
      if (x.length) [x0, x1] = [Math.min(x0, x[0]), Math.max(x1, x[x.length - 1])];
      for (const value of y) if (value !== null) [y0, y1] = [Math.min(y0, value), Math.max(y1, value)];
    }
    if (levels) [y0, y1] = [0, Math.max(levels.length - 1, 1)];
    if (!Number.isFinite(x0)) x0 = 0;
    if (!Number.isFinite(x1) || x1 <= x0) x1 = x0 + 1;
    if (!Number.isFinite(y0)) [y0, y1] = [0, 1];
    if (y1 - y0 < 1e-9) [y0, y1] = [y0 - 0.5, y1 + 0.5];
    return { x0, x1, y0, y1 };
  }

  draw() {
    const { canvas } = this;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (!width || !height) return;
    const ratio = window.devicePixelRatio || 1;
    [canvas.width, canvas.height] = [Math.round(width * ratio), Math.round(height * ratio)];
    const c = canvas.getContext("2d");
    c.setTransform(canvas.width / width, 0, 0, canvas.height / height, 0, 0);
    const style = getComputedStyle(canvas);
    const colours = { ink: style.color, accent: style.accentColor, line: style.borderTopColor };
    const { x0, x1, y0, y1 } = this.bounds();
    const bottom = this.axis ? BOTTOM : 6;
    const toX = (x) => LEFT + ((x - x0) / (x1 - x0)) * (width - LEFT - RIGHT);
    const toY = (y) => height - bottom - ((y - y0) / (y1 - y0)) * (height - TOP - bottom);
    c.font = "11px system-ui, sans-serif";
    this.drawAxes(c, colours, { x0, x1, y0, y1, toX, toY, width, height });
    for (const { x, text } of this.shown.marks) this.drawMark(c, colours, toX(x), height - bottom, text);
    for (const line of this.shown.lines) drawLine(c, colours.accent, line, toX, toY);
    if (this.cursor !== null && this.cursor >= x0 && this.cursor <= x1) {
      c.fillStyle = colours.ink;
      c.fillRect(toX(this.cursor) - 0.75, TOP, 1.5, height - bottom - TOP);
    }
    if (this.pointed !== null && this.pointed >= LEFT) this.drawReading(c, colours, toX, toY, width);
  }

  drawAxes(c, colours, { x0, x1, y0, y1, toX, toY, width, height }) {
    const { levels } = this.shown;
    const ticks = levels ? levels.map((_, i) => i) : nice(y0, y1, height > 110 ? 4 : 2);
    c.textAlign = "right";
    c.textBaseline = "middle";
    for (const y of ticks) {
      c.fillStyle = colours.line;
      c.fillRect(LEFT, Math.round(toY(y)), width - LEFT - RIGHT, 1);
      c.fillStyle = colours.ink;
      c.globalAlpha = 0.65;
      c.fillText(levels ? fitted(levels[y]) : short(y), LEFT - 6, toY(y));
      c.globalAlpha = 1;
    }
    if (!this.axis) return;
    c.textBaseline = "alphabetic";
    c.fillStyle = colours.ink;
    c.globalAlpha = 0.65;
    for (const x of nice(x0, x1, 4)) {
      c.textAlign = toX(x) > width - 30 ? "right" : "center";
      c.fillText(short(x), toX(x), height - 4);
    }
    c.globalAlpha = 1;
  }

  drawMark(c, colours, x, bottom, text) {
    c.save();
    c.strokeStyle = colours.ink;
    c.globalAlpha = 0.5;
    c.setLineDash([2, 3]);
    c.beginPath();
    c.moveTo(x, TOP);
    c.lineTo(x, bottom);
    c.stroke();
    c.setLineDash([]);
    c.globalAlpha = 0.75;
    c.fillStyle = colours.ink;
    c.translate(x - 4, TOP + 2);
    c.rotate(-Math.PI / 2);
    c.textAlign = "right";
    c.textBaseline = "alphabetic";
    c.fillText(text, 0, 0);
    c.restore();
  }

  drawReading(c, colours, toX, toY, width) {
    const wanted = this.xAt(this.pointed);
    const lines = this.shown.lines.filter((line) => !line.faint && line.x.length);
    const texts = lines
      .map(({ x, y, colour = colours.accent }) => {
        const distance = (k) => Math.abs(x[k] - wanted);
        const i = x.reduce((nearest, _, k) => (distance(k) <= distance(nearest) ? k : nearest), 0);
        if (y[i] === null) return null;
        c.fillStyle = colour;
        c.beginPath();
        c.arc(toX(x[i]), toY(y[i]), 3, 0, 2 * Math.PI);
        c.fill();
        const level = this.shown.levels?.[y[i]];
        return { text: `${short(x[i])}: ${level ?? short(y[i])}`, colour };
      })
      .filter((one) => one !== null);
    c.textBaseline = "top";
    const left = this.pointed < width / 2;
    c.textAlign = left ? "right" : "left";
    texts.forEach(({ text, colour }, i) => {
      c.fillStyle = colour;
      c.fillText(text, left ? width - RIGHT : LEFT + 4, TOP + 13 * i);
    });
  }
}

/** @type {(c: any, accent: string, line: Line, toX: (x: number) => number, toY: (y: any) => number) => void} */
function drawLine(c, accent, { x, y, colour = accent, faint, steps }, toX, toY) {
  c.strokeStyle = colour;
  c.globalAlpha = faint ? 0.3 : 1;
  c.lineWidth = faint ? 1 : 1.8;
  c.lineJoin = "round";
  c.beginPath();
  let open = false;
  for (let i = 0; i < x.length; i++) {
    if (y[i] === null) {
      open = false;
      continue;
    }
    if (!open) c.moveTo(toX(x[i]), toY(y[i]));
    else {
      if (steps) c.lineTo(toX(x[i]), toY(y[i - 1]));
      c.lineTo(toX(x[i]), toY(y[i]));
    }
    open = true;
  }
  c.stroke();
  c.globalAlpha = 1;
  if (x.length < 30 && !faint) {
    c.fillStyle = colour;
    x.forEach((at, i) => {
      if (y[i] === null) return;
      c.beginPath();
      c.arc(toX(at), toY(y[i]), 2, 0, 2 * Math.PI);
      c.fill();
    });
  }
}

/** Return about ``count`` round numbers between two values. */
function nice(from, to, count) {
  const rough = (to - from) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((k) => k * power).find((k) => k >= rough * 0.999) ?? rough;
  const found = [];
  for (let k = Math.ceil(from / step - 1e-9); k * step <= to + step * 1e-9; k++) found.push(k * step);
  return found;
}

function short(value) {
  const size = Math.abs(value);
  if (size >= 1e6) return `${Number((value / 1e6).toPrecision(3))}M`;
  if (size >= 1e4) return `${Number((value / 1e3).toPrecision(3))}k`;
  return `${Number(value.toPrecision(3))}`;
}

function fitted(name) {
  return name.length > 7 ? `${name.slice(0, 6)}…` : name;
}
