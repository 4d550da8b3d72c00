/* Draws a level with its entities and runs onto a canvas, sharp at any zoom and device pixel ratio.
 *
 *     const scene = new Scene(canvas);
 *     scene.setLevel(level);                              // a level document
 *     const world = recording.seek(60);                   // state after 60 frames
 *     scene.draw({ world, others: [{ look, colour, label }], trails: [{ points, colour }] });
 *
 * A change of the canvas size or of the theme redraws the last picture.  Tiles are drawn once per view, static entities
 * when one of them changes, and moving entities in each frame.
 */

import { element } from "./elements.js";
import { MOVING, drawEntity, drawLeftOut, drawingOrder } from "./figures.js";
import { drawNinja } from "./ninja.js";
import { Pen, coloursOf, onThemeChange } from "./pen.js";
import { STAGE, TILE, levelOutline } from "./tiles.js";
import { World } from "./world.js";

const RIM = 1.1; // px, width of the darker edge of the tiles
const MARGIN = TILE; // px around the open part of the level in a fitted view
const LEAST_VIEW = [18 * TILE, 10 * TILE]; // px, minimum size of a fitted view
const CLOSE_SCALE = 1.4; // minimum scale of the closer view, screen px per level px
const MOST_SCALE = 16; // maximum zoom, screen px per level px
const OTHER_OPACITY = 0.6;

export class Scene {
  /** @type {World} */
  start; // state at the start of the level
  /** @type {Path2D} */
  outline; // of the tiles
  shown = [0, 0, STAGE.width, STAGE.height]; // part of the level in a fitted view, [left, top, right, bottom], px

  /** view: {x, y, scale}: level position in the middle of the canvas, and CSS px per level px. */
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { alpha: false });
    this.level = null;
    this.view = { x: STAGE.width / 2, y: STAGE.height / 2, scale: 1 };
    /** @type {string | null} */
    this.fitted = "level"; // "level", "stage", or null for a view chosen by the user
    this.last = {};
    this.tiles = element("canvas"); // cached picture of the tiles
    this.still = element("canvas"); // cached picture of the tiles and static entities
    this.endTheme = onThemeChange(() => {
      this.colours = coloursOf(canvas);
      this.redraw();
    });
    this.observer = new ResizeObserver((entries) => this.resize(entries[entries.length - 1]));
    const exact = "devicePixelContentBoxSize" in ResizeObserverEntry.prototype;
    this.observer.observe(canvas, exact ? { box: "device-pixel-content-box" } : {});
    this.colours = coloursOf(canvas);
    this.resize(null);
  }

  /** Remove all listeners; call it when the canvas is removed from the page. */
  destroy() {
    this.observer.disconnect();
    this.endTheme();
  }

  /** Show another level, or a changed one.  keepView: do not fit the view to it. */
  setLevel(level, { keepView = false } = {}) {
    this.level = level;
    this.start = new World(level);
    this.outline = levelOutline(level.tiles);
    const order = drawingOrder(level.entities);
    this.stillOnes = order.filter((index) => !MOVING.has(level.entities[index].kind));
    this.movingOnes = order.filter((index) => MOVING.has(level.entities[index].kind));
    if (!keepView) this.fit();
    this.redraw();
  }

  // -------------------------------------------------------------------------------------------------------------------
  // The view

  /** Fit the view to the open part of the level ("level") or to the whole stage ("stage"), or let a closer view follow
   *  the ninja ("closer"). */
  fit(what = "level") {
    this.fitted = what;
    this.shown = what === "stage" || !this.level ? [0, 0, STAGE.width, STAGE.height] : openPart(this.level);
    const [left, top, right, bottom] = this.shown;
    const scales = [(this.canvas.clientWidth || 1) / (right - left), (this.canvas.clientHeight || 1) / (bottom - top)];
    const whole = Math.min(...scales);
    this.isLong = Math.max(...scales) > 2 * whole; // the whole level leaves more than half of the canvas empty
    const scale = what === "closer" ? Math.max(CLOSE_SCALE, (this.isLong ? 2 : 1.5) * whole) : whole;
    this.view = { x: (left + right) / 2, y: (top + bottom) / 2, scale };
    this.forget();
  }

  /** Move the closer view with the ninja, up to the ends of the level. */
  follow([x, y]) {
    const [left, top, right, bottom] = this.shown;
    const { scale } = this.view;
    const middle = (at, low, high, size) =>
      high - low < size ? (low + high) / 2 : Math.min(Math.max(at, low + size / 2), high - size / 2);
    const next = {
      x: middle(x, left, right, this.canvas.clientWidth / scale),
      y: middle(y, top, bottom, this.canvas.clientHeight / scale),
      scale,
    };
    if (next.x === this.view.x && next.y === this.view.y) return;
    this.view = next;
    this.forget();
  }

  /** Width / height of a canvas that shows the open part of the level, with room for texts above and below it. */
  get aspect() {
    const [left, top, right, bottom] = openPart(this.level);
    return Math.max((right - left) / (bottom - top + 4 * TILE), STAGE.width / STAGE.height);
  }

  /** Zoom by a factor around a canvas position (CSS px; default: the middle). */
  zoom(factor, x = this.canvas.clientWidth / 2, y = this.canvas.clientHeight / 2) {
    const before = this.toLevel(x, y);
    const least = Math.min(this.canvas.clientWidth / STAGE.width, this.canvas.clientHeight / STAGE.height) / 2;
    this.view.scale = Math.min(Math.max(this.view.scale * factor, least), MOST_SCALE);
    const after = this.toLevel(x, y);
    this.pan(after[0] - before[0], after[1] - before[1]);
  }

  pan(dx, dy) {
    this.fitted = null;
    this.view.x = Math.min(Math.max(this.view.x - dx, 0), STAGE.width);
    this.view.y = Math.min(Math.max(this.view.y - dy, 0), STAGE.height);
    this.forget();
    this.redraw();
  }

  /** Convert a canvas position (CSS px, as event.offsetX and offsetY) to a level position. */
  toLevel(x, y) {
    const { clientWidth, clientHeight } = this.canvas;
    return [
      this.view.x + (x - clientWidth / 2) / this.view.scale,
      this.view.y + (y - clientHeight / 2) / this.view.scale,
    ];
  }

  /** Convert a level position to a canvas position, CSS px. */
  toCanvas(x, y) {
    const { clientWidth, clientHeight } = this.canvas;
    return [
      (x - this.view.x) * this.view.scale + clientWidth / 2,
      (y - this.view.y) * this.view.scale + clientHeight / 2,
    ];
  }

  resize(entry) {
    const { canvas } = this;
    const ratio = window.devicePixelRatio || 1;
    const exact = entry?.devicePixelContentBoxSize?.[0];
    const width = Math.max(exact?.inlineSize ?? Math.round(canvas.clientWidth * ratio), 1);
    const height = Math.max(exact?.blockSize ?? Math.round(canvas.clientHeight * ratio), 1);
    for (const each of [canvas, this.tiles, this.still]) {
      if (each.width !== width || each.height !== height) [each.width, each.height] = [width, height];
    }
    if (this.fitted) this.fit(this.fitted);
    this.forget();
    this.redraw();
  }

  // -------------------------------------------------------------------------------------------------------------------
  // Drawing

  /** Draw a picture with these optional fields.
   *  world: state to draw; default: the start of the level.
   *  ninja: look of the ninja; default: the world's; null: no ninja.  age: frames since its death.
   *  others: [{look, colour, label}].  trails: [{points: [[x, y], ...], colour, width}].
   *  under, over: functions that draw with a Pen below the moving entities, or above everything, in level
   *  coordinates. */
  draw(picture = {}) {
    this.last = picture;
    const { context, canvas } = this;
    context.setTransform(1, 0, 0, 1, 0, 0);
    if (!this.level) {
      context.fillStyle = this.colours.tile;
      context.fillRect(0, 0, canvas.width, canvas.height);
      return;
    }
    const { world = this.start, others = [], trails = [], age = 0 } = picture;
    const ninja = picture.ninja === undefined ? world.ninja : picture.ninja;
    if (this.fitted === "closer") this.follow(world.ninja.at);
    this.drawStill(world);
    context.drawImage(this.still, 0, 0);
    this.place(context);
    const pen = new Pen(context, this.colours);
    for (const { points, colour, width = 1.6 } of trails) {
      if (points.length > 1) pen.line(points, colour ?? this.colours.trace, width);
    }
    picture.under?.(pen);
    for (const index of this.movingOnes) this.drawOne(pen, index, world);
    context.globalAlpha = OTHER_OPACITY;
    for (const { look, colour } of others) drawNinja(pen, look, colour, colour);
    context.globalAlpha = 1;
    this.drawLabels(pen, others.map(({ look, colour, label }) => ({ at: look.at, label, colour })));
    if (ninja) drawNinja(pen, ninja, this.colours.ink, this.colours.band, age);
    picture.over?.(pen);
  }

  redraw() {
    this.forget();
    this.draw(this.last);
  }

  /** Discard the cached pictures. */
  forget() {
    this.tilesDrawn = this.stillDrawn = this.stillWorld = null;
  }

  /** Set the transformation of a context to level coordinates. */
  place(context) {
    const { x, y, scale } = this.view;
    const { width, height, clientWidth } = this.canvas;
    const k = (scale * width) / (clientWidth || width);
    context.setTransform(k, 0, 0, k, width / 2 - k * x, height / 2 - k * y);
  }

  drawTiles() {
    const context = this.tiles.getContext("2d", { alpha: false });
    const { colours, outline } = this;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.fillStyle = colours.tile; // outside of the stage, everything is solid
    context.fillRect(0, 0, this.tiles.width, this.tiles.height);
    this.place(context);
    context.fillStyle = colours.open;
    context.fillRect(TILE, TILE, STAGE.width - 2 * TILE, STAGE.height - 2 * TILE);
    context.fillStyle = colours.tile;
    context.fill(outline);
    context.save();
    context.clip(outline);
    context.strokeStyle = colours.rim;
    context.lineWidth = 2 * RIM;
    context.stroke(outline);
    context.restore();
    context.strokeStyle = colours.tile; // no rim around the stage
    context.lineWidth = 2 * RIM + 1;
    context.strokeRect(0, 0, STAGE.width, STAGE.height);
    this.tilesDrawn = true;
  }

  drawStill(world) {
    if (this.stillDrawn === world.version && this.stillWorld === world) return;
    if (!this.tilesDrawn) this.drawTiles();
    const context = this.still.getContext("2d", { alpha: false });
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.drawImage(this.tiles, 0, 0);
    this.place(context);
    const pen = new Pen(context, this.colours);
    this.drawLeftOut(pen);
    for (const index of this.stillOnes) this.drawOne(pen, index, world);
    [this.stillDrawn, this.stillWorld] = [world.version, world];
  }

  drawOne(pen, index, world) {
    drawEntity(pen, this.level.entities[index], world.looks[index]);
  }

  /** Draw the entities that are not simulated as pale rings with names. */
  drawLeftOut(pen) {
    for (const { x, y } of this.level.left_out) drawLeftOut(pen, [x, y]);
    this.drawLabels(
      pen,
      this.level.left_out.map(({ name, x, y }) => ({ at: [x, y], label: name, colour: this.colours.muted })),
    );
  }

  /** Draw labels, [{at, label, colour}], above positions.  A label that overlaps an earlier one moves up, or is left
   *  out if both have the same text. */
  drawLabels(pen, labels) {
    const { context } = pen;
    const size = Math.max(7, 11 / this.view.scale);
    context.font = `600 ${size}px system-ui, sans-serif`;
    context.textAlign = "center";
    context.lineWidth = size / 4;
    context.strokeStyle = this.colours.open;
    const drawn = []; // of {x, y, half, label}
    for (const {
      at: [x, above],
      label,
      colour,
    } of labels) {
      if (!label) continue;
      const half = context.measureText(label).width / 2;
      let y = above - 13;
      const covered = () =>
        drawn.find((other) => Math.abs(other.x - x) < other.half + half && Math.abs(other.y - y) < size);
      let other = covered();
      while (other && other.label !== label) {
        y = other.y - 1.05 * size;
        other = covered();
      }
      if (other) continue;
      drawn.push({ x, y, half, label });
      context.strokeText(label, x, y);
      context.fillStyle = colour;
      context.fillText(label, x, y);
    }
  }
}

/** Return the bounding box of the open tiles and the spawn, with a margin: [left, top, right, bottom], px. */
function openPart(level) {
  let [left, top, right, bottom] = [STAGE.width, STAGE.height, 0, 0];
  const include = (x1, y1, x2, y2) => {
    [left, top] = [Math.min(left, x1), Math.min(top, y1)];
    [right, bottom] = [Math.max(right, x2), Math.max(bottom, y2)];
  };
  level.tiles.forEach((row, r) =>
    row.forEach((tile, c) => {
      if (tile !== 1) include((c + 1) * TILE, (r + 1) * TILE, (c + 2) * TILE, (r + 2) * TILE);
    }),
  );
  const [x, y] = level.spawn;
  include(x - TILE, y - TILE, x + TILE, y + TILE);
  [left, top] = [Math.max(left - MARGIN, 0), Math.max(top - MARGIN, 0)];
  [right, bottom] = [Math.min(right + MARGIN, STAGE.width), Math.min(bottom + MARGIN, STAGE.height)];
  const [spareX, spareY] = [
    Math.max(LEAST_VIEW[0] - (right - left), 0) / 2,
    Math.max(LEAST_VIEW[1] - (bottom - top), 0) / 2,
  ];
  return [left - spareX, top - spareY, right + spareX, bottom + spareY];
}
