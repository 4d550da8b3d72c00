/* The editor's canvas: draws the level and the tool, and converts pointer and key events to commands of the Editor. */

import { isOnStage, tileOf } from "./editor_state.js";
import { drawEntity, drawingOrder, drawLeftOut } from "./figures.js";
import { documentOf, pixels } from "./level_document.js";
import { NINJA, STEP, STEPS_PER_TILE } from "./kinds.js";
import { emptyState, place, placeOf } from "./level_model.js";
import { Gait, drawNinja } from "./ninja.js";
import { Pen } from "./pen.js";
import { Scene } from "./scene.js";
import { STAGE, TILE, tileOutline } from "./tiles.js";
import { World } from "./world.js";

const WHEEL_ZOOM = 1.0015; // zoom factor per unit of deltaY
const QUARTERS_FROM = 2; // scale (screen px per level px) from which the grid shows quarter tiles
const ONE_SIDED = 34; // first of the four tiles with a single face: top, right, bottom, left
const FACES = [
  [[0, 0], [24, 0]],
  [[24, 0], [24, 24]],
  [[0, 24], [24, 24]],
  [[0, 0], [0, 24]],
];
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export class EditorCanvas {
  constructor(canvas, editor) {
    this.canvas = canvas;
    this.editor = editor;
    this.scene = new Scene(canvas);
    this.scene.fit("stage");
    this.grid = true;
    this.route = null; // positions of the planner's run, [[x, y], ...], px
    this.marks = []; // positions of diagnostics, in steps
    this.pointers = new Map(); // pressed pointers: id -> [x, y], CSS px
    this.pinch = null; // gesture of two fingers: {distance, middle}
    this.wanted = 0; // id of the requested animation frame, or 0
    this.change = () => this.#requestDraw();
    for (const event of ["change", "cursor"]) editor.addEventListener(event, this.change);
    this.#listen();
    this.#requestDraw();
  }

  destroy() {
    for (const event of ["change", "cursor"]) this.editor.removeEventListener(event, this.change);
    cancelAnimationFrame(this.wanted);
    this.scene.destroy();
  }

  // -------------------------------------------------------------------------------------------------------------------
  // Drawing, at most once per animation frame

  #requestDraw() {
    if (this.wanted) return;
    this.wanted = requestAnimationFrame(() => {
      this.wanted = 0;
      this.draw();
    });
  }

  show({ route = this.route, marks = this.marks, grid = this.grid }) {
    [this.route, this.marks, this.grid] = [route, marks, grid];
    this.#requestDraw();
  }

  draw() {
    const { editor, scene } = this;
    if (this.drawn !== editor.state) {
      this.drawn = editor.state;
      scene.setLevel(documentOf(editor.state), { keepView: true });
    }
    const ninja = editor.state.spawn ? scene.start.ninja : null;
    scene.draw({ ninja, over: (pen) => this.#over(pen) });
  }

  #over(pen) {
    const { editor } = this;
    const thin = 1 / this.scene.view.scale; // one screen px
    if (this.grid) this.#drawGrid(pen, thin);
    for (const entity of editor.state.entities) this.#drawLink(pen, entity, thin);
    if (this.route) {
      pen.line(this.route, pen.colours.pale, 5);
      pen.line(this.route, pen.colours.green, 2.4);
    }
    for (const at of this.marks) pen.ring(pixels(at), 15, 2.4, pen.colours.amber);
    if (editor.region) this.#frame(pen, boxOf(editor.region), pen.colours.blue, 2 * thin, true);
    if (editor.part) pen.ring(pixels(placeOf(editor.state, editor.part)), 14, Math.max(2, 2 * thin), pen.colours.blue);
    this.#drawCursor(pen, thin);
  }

  #drawGrid(pen, thin) {
    const draw = (step, opacity) => {
      const c = pen.context;
      c.beginPath();
      for (let x = TILE; x <= STAGE.width - TILE; x += step) {
        c.moveTo(x, TILE);
        c.lineTo(x, STAGE.height - TILE);
      }
      for (let y = TILE; y <= STAGE.height - TILE; y += step) {
        c.moveTo(TILE, y);
        c.lineTo(STAGE.width - TILE, y);
      }
      c.globalAlpha = opacity;
      c.lineWidth = thin;
      c.strokeStyle = pen.colours.muted;
      c.stroke();
      c.globalAlpha = 1;
    };
    if (this.scene.view.scale >= QUARTERS_FROM) draw(STEP, 0.16);
    draw(TILE, 0.34);
  }

  // Connect an entity with its switch.
  #drawLink(pen, entity, thin) {
    if (!entity.switch) return;
    const c = pen.context;
    c.setLineDash([4 * thin, 4 * thin]);
    pen.line([pixels([entity.x, entity.y]), pixels(entity.switch)], pen.colours.muted, 1.4 * thin);
    c.setLineDash([]);
  }

  /** @type {(pen: Pen, box: number[], colour: string, line: number, filled: boolean) => void} */
  #frame(pen, [x, y, width, height], colour, line, filled) {
    const c = pen.context;
    c.strokeStyle = c.fillStyle = colour;
    c.lineWidth = line;
    if (filled) {
      c.globalAlpha = 0.16;
      c.fillRect(x, y, width, height);
      c.globalAlpha = 1;
    }
    c.strokeRect(x, y, width, height);
  }

  #drawCursor(pen, thin) {
    const { editor } = this;
    const c = pen.context;
    const [column, row] = tileOf(editor.cursor);
    const box = boxOf({ column, row, width: 1, height: 1 });
    const colour = editor.tool === "erase" ? pen.colours.red : pen.colours.blue;
    if (editor.tool === "tile" || editor.tool === "fill") {
      c.save();
      c.globalAlpha = 0.55;
      c.translate(box[0], box[1]);
      c.fillStyle = editor.tile ? pen.colours.blue : pen.colours.pale;
      c.fill(editor.tile ? tileOutline(editor.tile) : tileOutline(1));
      c.restore();
    } else if (editor.tool === "entity") {
      c.globalAlpha = 0.7;
      drawFigure(pen, editor.entity, editor.cursor, editor.pending);
      c.globalAlpha = 1;
    }
    if (["select", "entity"].includes(editor.tool)) {
      const [x, y] = pixels(editor.cursor);
      for (const [dx, dy] of [[1, 0], [-1, 0], [0, 1], [0, -1]]) {
        pen.line([[x + 3 * dx, y + 3 * dy], [x + 9 * dx, y + 9 * dy]], colour, Math.max(1.2, 1.5 * thin));
      }
    } else {
      this.#frame(pen, box, colour, Math.max(1.4, 2 * thin), false);
    }
  }

  // -------------------------------------------------------------------------------------------------------------------
  // Pointers: one finger draws, two move and zoom the view; the right button erases, the middle one moves the view

  #listen() {
    const { canvas } = this;
    canvas.addEventListener("pointerdown", (event) => this.#down(event));
    canvas.addEventListener("pointermove", (event) => this.#move(event));
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, (event) => this.#up(event));
    canvas.addEventListener("contextmenu", (event) => event.preventDefault());
    canvas.addEventListener(
      "wheel",
      (event) => {
        event.preventDefault();
        this.scene.zoom(WHEEL_ZOOM ** -event.deltaY, event.offsetX, event.offsetY);
        this.#requestDraw();
      },
      { passive: false },
    );
    canvas.addEventListener("keydown", (event) => this.#key(event));
    canvas.addEventListener("keyup", (event) => {
      if (event.key === " ") this.editor.release();
    });
    canvas.addEventListener("blur", () => this.editor.release());
  }

  // Position of an event in steps.
  #placeOf(event) {
    return this.scene.toLevel(event.offsetX, event.offsetY).map((v) => v / STEP);
  }

  #down(event) {
    this.canvas.setPointerCapture(event.pointerId);
    this.canvas.focus({ preventScroll: true });
    event.preventDefault();
    this.pointers.set(event.pointerId, [event.offsetX, event.offsetY]);
    if (this.pointers.size === 2) {
      this.editor.cancel();
      this.pinch = this.#fingers();
    } else if (event.button === 1) {
      this.dragging = [event.offsetX, event.offsetY];
    } else if (this.pointers.size === 1) {
      this.editor.press(this.#placeOf(event), event.button === 2 ? { erasing: true } : {});
    }
  }

  #move(event) {
    if (this.pointers.has(event.pointerId)) this.pointers.set(event.pointerId, [event.offsetX, event.offsetY]);
    const { scale } = this.scene.view;
    if (this.pinch) {
      if (this.pointers.size < 2) return; // one finger has been lifted already
      const now = this.#fingers();
      this.scene.zoom(now.distance / this.pinch.distance, ...now.middle);
      this.scene.pan((now.middle[0] - this.pinch.middle[0]) / scale, (now.middle[1] - this.pinch.middle[1]) / scale);
      this.pinch = now;
      this.#requestDraw();
    } else if (this.dragging) {
      this.scene.pan((event.offsetX - this.dragging[0]) / scale, (event.offsetY - this.dragging[1]) / scale);
      this.dragging = [event.offsetX, event.offsetY];
      this.#requestDraw();
    } else {
      this.editor.move(this.#placeOf(event));
    }
  }

  #up(event) {
    this.pointers.delete(event.pointerId);
    if (this.pinch && this.pointers.size === 0) this.pinch = null;
    else if (this.dragging) this.dragging = null;
    else if (!this.pinch) this.editor.release();
  }

  #fingers() {
    const [[ax, ay], [bx, by]] = [...this.pointers.values()];
    return { distance: Math.max(Math.hypot(ax - bx, ay - by), 1), middle: [(ax + bx) / 2, (ay + by) / 2] };
  }

  // -------------------------------------------------------------------------------------------------------------------
  // Keys: arrows move the cursor, space is the mouse button, Enter presses, and the next Enter releases

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const arrow = ARROWS[event.key];
    if (arrow) {
      this.editor.step(...arrow, event.shiftKey);
      this.follow();
    } else if (event.key === " " && !event.repeat) {
      this.editor.press(this.editor.cursor);
    } else if (event.key === "Enter" && !event.repeat) {
      if (this.editor.pressed) this.editor.release();
      else {
        this.editor.press(this.editor.cursor);
        if (this.editor.tool !== "select" && this.editor.tool !== "tile") this.editor.release();
      }
    } else if (event.key !== " " && event.key !== "Enter") {
      return;
    }
    event.preventDefault();
  }

  follow() {
    const { canvas, scene } = this;
    const [x, y] = scene.toCanvas(...pixels(this.editor.cursor));
    const margin = 30;
    const past = (v, size) => (v < margin ? margin - v : v > size - margin ? size - margin - v : 0);
    const [dx, dy] = [past(x, canvas.clientWidth), past(y, canvas.clientHeight)];
    if (dx || dy) scene.pan(dx / scene.view.scale, dy / scene.view.scale);
    this.#requestDraw();
  }

  zoom(factor) {
    this.scene.zoom(factor);
    this.follow();
  }

  fit() {
    this.scene.fit("stage");
    this.scene.redraw();
    this.#requestDraw();
  }
}

// Return [x, y, width, height], px, of a region of tiles.
function boxOf({ column, row, width, height }) {
  return [TILE * (column + 1), TILE * (row + 1), TILE * width, TILE * height];
}

/** Draw an entity in its start state at a position in steps.
 *  @param {any} [pending] - the door or exit, if the position is its switch's */
function drawFigure(pen, entity, at, pending) {
  if (!isOnStage(at)) return;
  if (entity.kind === NINJA) {
    const [x, y] = pixels(at);
    drawNinja(pen, new Gait().after([x, y, 0, 0, 0, 0, -1, 0], 0));
    return;
  }
  const [x, y] = pending ? [pending.x, pending.y] : at;
  const level = documentOf(place(emptyState(), { ...entity, x, y, switch: at }));
  const { looks } = new World(level);
  for (const index of drawingOrder(level.entities)) {
    const itsSwitch = level.entities[index].exit !== undefined;
    if (pending || !itsSwitch) drawEntity(pen, level.entities[index], looks[index]);
  }
  for (const { x: left, y: top } of level.left_out) drawLeftOut(pen, [left, top]);
}

export function drawIcon(canvas, colours, { entity, tile }) {
  const ratio = window.devicePixelRatio || 1;
  const size = Number(canvas.dataset.size);
  [canvas.width, canvas.height] = [size * ratio, size * ratio];
  const context = canvas.getContext("2d");
  const shown = tile === undefined ? 36 : 28; // level px
  const k = (size * ratio) / shown;
  context.setTransform(k, 0, 0, k, 0, 0);
  context.fillStyle = colours.open;
  context.fillRect(0, 0, shown, shown);
  if (tile === undefined) {
    context.translate(shown / 2 - 8 * TILE, shown / 2 - 8 * TILE);
    drawFigure(new Pen(context, colours), entity, [8 * STEPS_PER_TILE, 8 * STEPS_PER_TILE]);
  } else {
    context.translate(2, 2);
    context.fillStyle = colours.tile;
    context.fill(tileOutline(tile));
    if (tile >= ONE_SIDED) new Pen(context, colours).line(FACES[tile - ONE_SIDED], colours.amber, 4);
  }
}
