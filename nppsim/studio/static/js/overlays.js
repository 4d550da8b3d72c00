/* Overlays that draw an agent's observations and the paths to the objective onto the level. */

import { element } from "./elements.js";

const CELL = 12; // px, cell size of surroundings and of the lattice
const LATTICE = [89, 51]; // lattice points along x and y
const WALL = 65534; // first path length without a path
const PLANES = ["steel", "red", "blue"]; // colours of solid, deadly and one-way cells
const SPEED_FRAMES = 8; // length of a hazard's velocity line, frames of motion
const HOLD = 0; // index of the continuation that repeats the action

/** Overlays, and the observation that each needs; "paths" is computed from the level. */
export const OVERLAYS = [
  { name: "surroundings", title: "Surroundings", key: "surroundings" },
  { name: "hazards", title: "Hazards", key: "hazards" },
  { name: "foresight", title: "Look-ahead for each action", key: "foresight" },
  { name: "paths", title: "Paths to the objective", key: null },
];

/** Functions that draw an overlay with a Pen around the ninja's position.  seen: s of a decision document. */
export const draw = {
  surroundings(pen, [x, y], seen) {
    const values = seen.surroundings;
    const side = Math.round(Math.sqrt(values.length / PLANES.length));
    const [left, top] = [x - (side * CELL) / 2, y - (side * CELL) / 2];
    const c = pen.context;
    PLANES.forEach((name, plane) => {
      c.fillStyle = pen.colours[name];
      for (let row = 0; row < side; row++) {
        for (let column = 0; column < side; column++) {
          const share = values[(plane * side + row) * side + column];
          if (!share) continue;
          c.globalAlpha = (share / 255) * 0.62;
          c.fillRect(left + column * CELL + 0.6, top + row * CELL + 0.6, CELL - 1.2, CELL - 1.2);
        }
      }
    });
    c.globalAlpha = 0.7;
    c.strokeStyle = pen.colours.ink;
    c.lineWidth = 0.8;
    c.strokeRect(left, top, side * CELL, side * CELL);
    c.globalAlpha = 1;
  },

  hazards(pen, [x, y], seen, layout) {
    const width = layout.hazards.components.length;
    for (let i = 0; i < seen.hazards.length; i += width) {
      const [dx, dy, vx, vy, radius] = seen.hazards.slice(i, i + width);
      if (!radius) continue;
      const at = [x + dx, y + dy];
      pen.context.globalAlpha = 0.35;
      pen.line([[x, y], at], pen.colours.red, 0.7);
      pen.context.globalAlpha = 1;
      pen.ring(at, radius + 4, 1.4, pen.colours.red);
      if (vx || vy) pen.line([at, [at[0] + SPEED_FRAMES * vx, at[1] + SPEED_FRAMES * vy]], pen.colours.red, 1.4);
    }
  },

  foresight(pen, [x, y], seen, layout, decision) {
    const [actions, continuations, width] = layout.foresight.shape;
    const place = Object.fromEntries(layout.foresight.components.map((name, i) => [name, i]));
    for (let action = 0; action < actions; action++) {
      for (let onward = 0; onward < continuations; onward++) {
        const row = seen.foresight.slice(
          (action * continuations + onward) * width,
          (action * continuations + onward + 1) * width,
        );
        const end = [x + row[place.dx], y + row[place.dy]];
        const [dead, won] = [row[place.death] > 0, row[place.win] > 0];
        const colour = dead ? pen.colours.red : won ? pen.colours.green : pen.colours.blue;
        const taken = action === decision.a;
        pen.context.globalAlpha = onward === HOLD ? 0.35 + 0.6 * decision.p[action] : 0.16;
        pen.line([[x, y], end], colour, onward === HOLD ? 0.8 + 2.2 * decision.p[action] : 0.6);
        if (dead) cross(pen, end, colour);
        else pen.disc(end, taken && onward === HOLD ? 3 : 1.8, colour);
      }
    }
    pen.context.globalAlpha = 1;
  },

  paths(pen, [x, y], paths) {
    const c = pen.context;
    c.globalAlpha = 0.55;
    c.imageSmoothingEnabled = true;
    c.drawImage(paths.picture, -CELL / 2, -CELL / 2, LATTICE[0] * CELL, LATTICE[1] * CELL);
    c.globalAlpha = 0.9;
    c.setLineDash([5, 4]);
    pen.line([[x, y], ...steepest(paths.field, x, y)], pen.colours.blue, 2);
    c.setLineDash([]);
    c.globalAlpha = 1;
  },
};

/** Return path lengths and their picture.  field: Uint16Array, paths of a decision. */
export function pathPicture(field) {
  let longest = 1;
  for (const value of field) if (value < WALL) longest = Math.max(longest, value);
  const picture = gridPicture(...LATTICE, (column, row) => {
    const value = field[column * LATTICE[1] + row];
    if (value >= WALL) return null;
    return [...hue(value / longest), 255];
  });
  return { field, picture };
}

/** Return a canvas with one pixel per cell.  colour: (column, row) -> [r, g, b, a] or null. */
export function gridPicture(columns, rows, colour) {
  const picture = element("canvas");
  [picture.width, picture.height] = [columns, rows];
  const context = picture.getContext("2d");
  const image = context.createImageData(columns, rows);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const values = colour(column, row);
      if (values) image.data.set(values, 4 * (row * columns + column));
    }
  }
  context.putImageData(image, 0, 0);
  return picture;
}

/** Show a greyscale observation, Uint8Array, on a canvas. */
export function showPicture(canvas, values, key, shape) {
  const xFirst = key === "global_view";
  const [columns, rows] = xFirst ? shape : [shape[1], shape[0]];
  const picture = gridPicture(columns, rows, (column, row) => {
    const grey = values[xFirst ? column * rows + row : row * columns + column];
    return [grey, grey, grey, 255];
  });
  [canvas.width, canvas.height] = [columns, rows];
  canvas.getContext("2d").drawImage(picture, 0, 0);
}

/** Return the path of steepest descent of the path lengths from a point: [[x, y], ...]. */
function steepest(field, x, y) {
  const lowest = (i, j, before) => {
    let best = before;
    for (let a = Math.max(i - 1, 0); a <= Math.min(i + 1, LATTICE[0] - 1); a++) {
      for (let b = Math.max(j - 1, 0); b <= Math.min(j + 1, LATTICE[1] - 1); b++) {
        const value = field[a * LATTICE[1] + b];
        if (value < WALL && (best === null || value < best.value)) best = { a, b, value };
      }
    }
    return best;
  };
  const points = [];
  let [before, at] = [null, lowest(Math.round(x / CELL), Math.round(y / CELL), null)];
  while (at !== before) {
    points.push([at.a * CELL, at.b * CELL]);
    [before, at] = [at, lowest(at.a, at.b, at)];
  }
  return points;
}

/** @type {(pen: import("./pen.js").Pen, at: number[], colour: string) => void} */
function cross(pen, [x, y], colour) {
  pen.line([[x - 2.5, y - 2.5], [x + 2.5, y + 2.5]], colour, 1.2);
  pen.line([[x - 2.5, y + 2.5], [x + 2.5, y - 2.5]], colour, 1.2);
}

/** Return the colour of a relative path length: 0 is green, 1 violet. */
function hue(share) {
  const stops = [[46, 174, 116], [214, 190, 60], [222, 116, 66], [120, 74, 160]];
  const at = Math.min(share, 0.9999) * (stops.length - 1);
  const [i, t] = [Math.floor(at), at % 1];
  return stops[i].map((value, k) => Math.round(value + t * (stops[i + 1][k] - value)));
}
