/* The 38 tile shapes as outlines (docs/physics.md, section 3), and the outline of a whole level.
 *
 * Edges that two neighbouring tiles share are removed, so that no seam is visible at any zoom.  Corners lie on the
 * half-cell grid of 12 px; y grows downward.
 */

export const TILE = 24; // px
const HALF = TILE / 2;
export const STAGE = { width: 1056, height: 600, columns: 44, rows: 25 }; // px and tiles, with the border of one tile
export const NUM_TILES = 38; // higher tile ids have no geometry

const SQUARE = [[0, 0], [24, 0], [24, 24], [0, 24]]; // clockwise on screen, like all loops
const HALVES = {
  2: [[0, 0], [24, 0], [24, 12], [0, 12]],
  3: [[12, 0], [24, 0], [24, 24], [12, 24]],
  4: [[0, 12], [24, 12], [24, 24], [0, 24]],
  5: [[0, 0], [12, 0], [12, 24], [0, 24]],
};
// Slopes as lines from (x1, y1) to (x2, y2); the left side of the line (on screen) is solid.
const SLOPES = {
  6: [0, 24, 24, 0],
  7: [0, 0, 24, 24],
  8: [24, 0, 0, 24],
  9: [24, 24, 0, 0],
  18: [0, 12, 24, 0],
  19: [0, 0, 24, 12],
  20: [24, 12, 0, 24],
  21: [24, 24, 0, 12],
  22: [0, 24, 24, 12],
  23: [0, 12, 24, 24],
  24: [24, 0, 0, 12],
  25: [24, 12, 0, 0],
  26: [0, 24, 12, 0],
  27: [12, 0, 24, 24],
  28: [24, 0, 12, 24],
  29: [12, 24, 0, 0],
  30: [12, 24, 24, 0],
  31: [0, 0, 12, 24],
  32: [12, 0, 0, 24],
  33: [24, 24, 12, 0],
};
// Quarter circles of radius 24.  For tiles 10 to 13 the disc around this corner is solid, for 14 to 17 the rest of the
// tile.
const CORNERS = [[0, 0], [24, 0], [24, 24], [0, 24]];

/** Return the edges of a tile's solid part, clockwise: [x1, y1, x2, y2], or [x1, y1, x2, y2, cx, cy, backwards] for an
 *  arc. */
function edgesOfTile(tile) {
  if (tile === 0 || tile >= NUM_TILES) return [];
  if (tile in HALVES) return loop(HALVES[tile]);
  if (tile in SLOPES) return loop(cut(SQUARE, SLOPES[tile]));
  if (tile >= 10 && tile <= 17) return quarter((tile - 10) % 4, tile < 14);
  return loop(SQUARE); // also one-sided tiles
}

/** Return whether a point, in px from the upper left corner of a tile, is in its solid part. */
export function isSolid(tile, x, y) {
  if (tile === 0 || tile >= NUM_TILES) return false;
  if (tile in HALVES) {
    const [[left, top], , [right, bottom]] = HALVES[tile];
    return x > left && x < right && y > top && y < bottom;
  }
  if (tile in SLOPES) return side(SLOPES[tile], [x, y]) < 0;
  if (tile < 10 || tile > 17) return true;
  const convex = tile < 14;
  const [cx, cy] = CORNERS[(tile - 10 + (convex ? 0 : 2)) % 4];
  return Math.hypot(x - cx, y - cy) < TILE === convex;
}

/** Return a number whose sign says on which side of a line a point is; negative: on the left, on screen. */
function side([x1, y1, x2, y2], [x, y]) {
  return (y - y1) * (x2 - x1) - (x - x1) * (y2 - y1);
}

function loop(points) {
  return points.map(([x, y], i) => [x, y, ...points[(i + 1) % points.length]]);
}

/** Return the part of a polygon on the left of a line. */
function cut(points, line) {
  const clipped = [];
  points.forEach((point, i) => {
    const next = points[(i + 1) % points.length];
    const [a, b] = [side(line, point), side(line, next)];
    if (a <= 0) clipped.push(point);
    if (a * b < 0) clipped.push([0, 1].map((k) => point[k] + ((next[k] - point[k]) * a) / (a - b)));
  });
  return clipped;
}

function quarter(corner, convex) {
  const [k, a, b] = [CORNERS[corner], CORNERS[(corner + 1) % 4], CORNERS[(corner + 3) % 4]];
  const [cx, cy] = convex ? k : CORNERS[(corner + 2) % 4];
  return [[...k, ...a], [...a, ...b, cx, cy, !convex], [...b, ...k]];
}

/** Split an edge at the half-cell grid, so that equal edges of neighbours can be removed. */
function* pieces([x1, y1, x2, y2, ...arc]) {
  const steps = arc.length || (x1 !== x2 && y1 !== y2) ? 1 : Math.max(Math.abs(x2 - x1), Math.abs(y2 - y1)) / HALF;
  for (let i = 0; i < steps; i++) {
    const at = (k) => [x1 + ((x2 - x1) * k) / steps, y1 + ((y2 - y1) * k) / steps];
    yield [...at(i), ...at(i + 1), ...arc];
  }
}

const EDGES = Array.from({ length: NUM_TILES }, (_, tile) => edgesOfTile(tile).flatMap((edge) => [...pieces(edge)]));
const keyOf = (x, y) => (x / HALF) * 128 + y / HALF;

/** Return the Path2D around the solid parts of tiles.  tiles: rows of tile ids, the first one at (left, top) px. */
export function outline(tiles, left, top) {
  const edges = new Map(); // end points -> edge
  tiles.forEach((row, r) =>
    row.forEach((tile, c) => {
      const [dx, dy] = [left + c * TILE, top + r * TILE];
      for (const [x1, y1, x2, y2, cx, cy, backwards] of EDGES[tile] ?? []) {
        const edge = [x1 + dx, y1 + dy, x2 + dx, y2 + dy];
        const [from, to] = [keyOf(edge[0], edge[1]), keyOf(edge[2], edge[3])];
        if (cx !== undefined) edges.set(`${from} ${to} ${tile}`, [...edge, cx + dx, cy + dy, backwards]);
        else if (!edges.delete(`${to} ${from}`)) edges.set(`${from} ${to}`, edge);
      }
    }),
  );
  return joined(edges.values());
}

function joined(edges) {
  const leaving = new Map(); // point -> edges that begin there
  for (const edge of edges) {
    const from = keyOf(edge[0], edge[1]);
    leaving.has(from) ? leaving.get(from).push(edge) : leaving.set(from, [edge]);
  }
  const path = new Path2D();
  for (const first of leaving.values()) {
    while (first.length) {
      let edge = first.pop();
      path.moveTo(edge[0], edge[1]);
      while (edge) {
        const [x1, y1, x2, y2, cx, cy, backwards] = edge;
        if (cx === undefined) path.lineTo(x2, y2);
        else path.arc(cx, cy, TILE, Math.atan2(y1 - cy, x1 - cx), Math.atan2(y2 - cy, x2 - cx), backwards);
        edge = leaving.get(keyOf(x2, y2))?.pop();
      }
      path.closePath();
    }
  }
  return path;
}

export function tileOutline(tile) {
  return outline([[tile]], 0, 0);
}

/** Return the Path2D of a level's tiles with the border around them. */
export function levelOutline(tiles) {
  const bar = Array(STAGE.columns).fill(1);
  return outline([bar, ...tiles.map((row) => [1, ...row, 1]), bar], 0, 0);
}
