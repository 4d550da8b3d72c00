/* Drawings of the entities; nppsim/pictures/figures.py draws the same in Python.
 *
 * Parts that block or kill are drawn at their true size.  Arguments: an entity of a level document, and its look
 * {x, y, active, closed, state, aim}.  state: signed number of its own state.
 * aim: [x, y, sign] of a laser, turret or shooting drone as in nppsim/physics/aims.py, or null.
 */

import { turned } from "./arrays.js";

const [ARMED, DORMANT] = [0, 1]; // states of mines
const [LOCKED, WARNING, BEAM, TRACE, ROCKET] = [2, 3, 4, 5, 6]; // signs of an aim; 1 is a moving crosshair
const UP = 6; // orientation in steps of 45 degrees, clockwise from right

function mine(pen, entity, look) {
  const at = [entity.x, entity.y];
  const { red, amber, pale } = pen.colours;
  if (look.state === DORMANT) {
    pen.ring(at, 4, 1.2, red);
    pen.disc(at, 1.2, red);
  } else if (look.state === ARMED) {
    pen.polygon(star(at, 16, 6, 3.9), red);
    pen.disc(at, 1.5, pale);
  } else {
    pen.disc(at, 4.5, amber);
    pen.ring(at, 4.5, 1.3, red);
  }
}

/** @type {(middle: number[], points: number, outer: number, inner: number) => number[][]} */
function star([x, y], points, outer, inner) {
  return Array.from({ length: points }, (_, i) => {
    const [angle, radius] = [(2 * Math.PI * i) / points, i % 2 ? inner : outer];
    return [x + radius * Math.cos(angle), y + radius * Math.sin(angle)];
  });
}

function gold(pen, entity, look) {
  if (!look.active) return;
  pen.box([entity.x, entity.y], 4.6, pen.colours.gold, pen.colours["gold-edge"], 1.2);
  pen.box([entity.x - 0.6, entity.y - 0.6], 1.6, "rgb(255 246 190)");
}

/** Draw an exit: barred until its switch is taken, then open. */
function exit(pen, entity, look) {
  const at = [entity.x, entity.y];
  const { steel, ink, muted, pale, blue } = pen.colours;
  pen.box(at, 12, steel, ink, 1.5, 3);
  if (look.closed) {
    pen.box(at, 8.5, muted, ink, 1, 1.5);
    for (const dy of [-4.2, 0, 4.2])
      pen.line([[entity.x - 6.5, entity.y + dy], [entity.x + 6.5, entity.y + dy]], steel, 1.2);
  } else {
    pen.box(at, 8.5, pale, blue, 1.8, 1.5);
    pen.box(at, 3.5, blue, null, 0, 1);
  }
}

function exitSwitch(pen, entity, look) {
  const at = [entity.x, entity.y];
  const { pale, ink, blue, muted } = pen.colours;
  if (look.active) {
    pen.box(at, 7, pale, ink, 1.4, 2);
    pen.box(at, 3.6, blue, null, 0, 1);
  } else {
    pen.box(at, 7, null, muted, 1.2, 2);
  }
}

/** Draw a door along its line, an open one as two short posts.  Returns a function: distance from the middle ->
 *  point. */
function bar(pen, [x1, y1, x2, y2], closed, colour) {
  const [x, y] = [(x1 + x2) / 2, (y1 + y2) / 2];
  const along = x1 === x2 ? (t) => [x, y + t] : (t) => [x + t, y];
  if (closed) {
    pen.line([along(-10.2), along(10.2)], colour, 3.6);
  } else {
    pen.line([along(-10.5), along(-8.5)], colour, 3);
    pen.line([along(8.5), along(10.5)], colour, 3);
  }
  return along;
}

function regularDoor(pen, entity, look) {
  const along = bar(pen, entity.door, look.closed, pen.colours.ink);
  if (look.closed) pen.line([along(-8), along(8)], pen.colours.steel, 1.2);
}

/** Draw a locked or trap door and its switch in the same colour. */
const switchedDoor = (name) => (pen, entity, look) => {
  const { pale, muted, [name]: colour } = pen.colours;
  const along = bar(pen, entity.door, look.closed, colour);
  if (look.closed) pen.box(along(0), 3.4, pale, colour, 1.3, 1);
  const at = [entity.x, entity.y];
  if (look.active) {
    pen.box(at, 5, pale, colour, 1.4, 1.5);
    pen.disc(at, 2, colour);
  } else {
    pen.box(at, 5, null, muted, 1.1, 1.5);
  }
};

function launchPad(pen, entity) {
  const angle = (entity.orientation * Math.PI) / 4;
  const at = [entity.x, entity.y];
  pen.polygon(turned([[-3, -8], [0, -8], [3, -5], [3, 5], [0, 8], [-3, 8]], angle, at), pen.colours.steel);
  pen.polygon(turned([[1.4, -6.4], [3.2, -5], [3.2, 5], [1.4, 6.4]], angle, at), pen.colours.amber);
}

function oneWay(pen, entity) {
  const angle = (entity.orientation * Math.PI) / 4;
  const at = [entity.x, entity.y];
  for (const t of [-8, 0, 8])
    pen.polygon(turned([[-5, t - 3], [-1, t], [-5, t + 3]], angle, at), pen.colours.steel);
  pen.polygon(turned([[-2.4, -12], [0, -12], [0, 12], [-2.4, 12]], angle, at), pen.colours.ink);
}

const drone = (radius, eye) => (pen, entity, look) => {
  const at = [look.x, look.y];
  pen.disc(at, radius, pen.colours.ink);
  pen.disc(at, radius - 1.3, pen.colours.cyan);
  pen.disc(at, radius * 0.36, pen.colours[eye]);
};

/** Draw a dome with an eye on the side to which it runs (state -1, 0 or 1). */
function floorGuard(pen, entity, look) {
  const c = pen.context;
  const radius = 6;
  c.beginPath();
  c.arc(look.x, look.y, radius, Math.PI, 2 * Math.PI);
  c.lineTo(look.x + radius, look.y + radius);
  c.lineTo(look.x - radius, look.y + radius);
  c.closePath();
  c.fillStyle = pen.colours.ink;
  c.fill();
  pen.box([look.x + 2 * look.state, look.y - 0.5], 1.8, look.state ? pen.colours.red : pen.colours.cyan, null, 0, 0.5);
}

function bounceBlock(pen, entity, look) {
  const { pale, ink, muted } = pen.colours;
  pen.box([look.x, look.y], 9, pale, ink, 1.4, 2);
  pen.box([look.x, look.y], 5, null, muted, 1, 1.5);
}

/** Draw a block with one lethal face, in another colour. */
function thwump(pen, entity, look) {
  const { steel, ink, cyan } = pen.colours;
  const at = [look.x, look.y];
  const angle = ([0, 2, 4].includes(entity.orientation) ? entity.orientation : UP) * (Math.PI / 4);
  pen.box(at, 9, steel, ink, 1.4, 1);
  pen.polygon(turned([[6, -7.5], [9, -7.5], [9, 7.5], [6, 7.5]], angle, at), cyan);
  pen.box(at, 2.2, ink, null, 0, 0.8);
}

/** Draw a block with a lethal core; while it moves (states 2 and 3), only the core can be touched. */
function shoveThwump(pen, entity, look) {
  const { pale, cyan, ink, red } = pen.colours;
  const at = [look.x, look.y];
  const moving = look.state >= 2;
  pen.box(at, 12, moving ? null : pale, cyan, 2, 1);
  pen.disc(at, 8, ink);
  pen.disc(at, 6.4, moving ? red : cyan);
}

function boostPad(pen, entity) {
  const { x, y } = entity;
  pen.ring([x, y], 6, 1.4, pen.colours.ink);
  for (const t of [-2.2, 1])
    pen.line([[x + t - 1, y - 2.4], [x + t + 1.2, y], [x + t - 1, y + 2.4]], pen.colours.green, 1.3);
}

/** Draw an evil ninja: a ring until it is touched, pale while it appears, dark once it kills. */
function evilNinja(pen, entity, look) {
  const { ink, steel, red } = pen.colours;
  if (look.state === 0) pen.ring([entity.x, entity.y], 10, 1.2, red);
  pen.disc([look.x, look.y], 6, look.state === 2 ? ink : steel);
  pen.disc([look.x, look.y], 1.5, red);
}

function deathBall(pen, entity, look) {
  const { ink, cyan, pale } = pen.colours;
  const at = [look.x, look.y];
  pen.ring(at, 8, 0.9, cyan);
  pen.disc(at, 5, ink);
  pen.disc(at, 3.9, cyan);
  pen.disc(at, 1.6, pale);
}

/** Beam, shot, crosshair or rocket of an entity.  colour: of a beam. */
function drawAim(pen, { x, y, aim }, colour) {
  if (!aim) return;
  const { red, amber, pale } = pen.colours;
  const [at, to, sign] = [[x, y], aim.slice(0, 2), aim[2]];
  if (sign === BEAM || sign === TRACE) {
    pen.context.globalAlpha *= 0.4;
    pen.line([at, to], red, sign === BEAM ? 4 : 1.4);
    pen.context.globalAlpha /= 0.4;
    if (sign === BEAM) pen.line([at, to], colour, 1.4);
  } else if (sign === WARNING) {
    pen.line([at, to], red, 1.2);
    pen.disc(at, 3.2, red);
  } else if (sign === ROCKET) {
    const angle = Math.atan2(to[1] - y, to[0] - x);
    pen.polygon(turned([[-8, 0], [-4, -1.8], [-4, 1.8]], angle, at), amber);
    pen.polygon(turned([[-4, -2.6], [2, -2.6], [6, 0], [2, 2.6], [-4, 2.6]], angle, at), red);
    pen.disc(at, 1.2, pale);
  } else {
    crosshair(pen, to, sign === LOCKED ? red : amber);
  }
}

function crosshair(pen, [x, y], colour) {
  pen.ring([x, y], 7, 1.4, colour);
  for (const [dx, dy] of [[1, 0], [0, 1], [-1, 0], [0, -1]])
    pen.line([[x + 4 * dx, y + 4 * dy], [x + 9.5 * dx, y + 9.5 * dy]], colour, 1.4);
  pen.disc([x, y], 1.2, colour);
}

function laser(pen, entity, look) {
  drawAim(pen, look, pen.colours.red);
  pen.disc([look.x, look.y], 5.9, pen.colours.ink);
  pen.disc([look.x, look.y], 2.4, pen.colours.red);
}

/** A drone with a square body, which does not kill by contact.  eye: name of the colour of its eye and shots. */
const shootingDrone = (eye) => (pen, entity, look) => {
  const { ink, steel, [eye]: colour } = pen.colours;
  const at = [look.x, look.y];
  pen.box(at, 7.5, ink, null, 0, 2);
  pen.box(at, 6, steel, null, 0, 1.5);
  pen.disc(at, 2.6, colour);
  drawAim(pen, look, colour);
};

/** Draw a turret and what it aims at.  eye: name of a colour. */
const turret = (eye) => (pen, entity, look) => {
  const at = [entity.x, entity.y];
  pen.disc(at, 6, pen.colours.ink);
  pen.disc(at, 4.4, pen.colours.steel);
  pen.disc(at, 2, pen.colours[eye]);
  drawAim(pen, look, pen.colours.red);
};

const FIGURES = {
  "exit door": exit,
  "one-way platform": oneWay,
  "launch pad": launchPad,
  "boost pad": boostPad,
  "regular door": regularDoor,
  "locked door": switchedDoor("gold-edge"),
  "trap door": switchedDoor("red"),
  "exit switch": exitSwitch,
  gold,
  mine,
  "toggle mine": mine,
  "bounce block": bounceBlock,
  thwump,
  "shove thwump": shoveThwump,
  "zap drone": drone(7.5, "ink"),
  "chaser drone": drone(7.5, "red"),
  "chaingun drone": shootingDrone("amber"),
  "laser drone": shootingDrone("red"),
  "mini drone": drone(4, "ink"),
  "floor guard": floorGuard,
  "death ball": deathBall,
  "evil ninja": evilNinja,
  "laser turret": laser,
  "rocket turret": turret("red"),
  "gauss turret": turret("amber"),
};
const ORDER = Object.keys(FIGURES); // from back to front
export const MOVING = new Set([
  "bounce block",
  "thwump",
  "shove thwump",
  "zap drone",
  "chaser drone",
  "chaingun drone",
  "laser drone",
  "mini drone",
  "floor guard",
  "death ball",
  "evil ninja",
  "laser turret",
  "rocket turret",
  "gauss turret",
]); // entities that move, or aim

/** Return the indices of the drawn entities, from back to front. */
export function drawingOrder(entities) {
  const drawn = entities.map((_, index) => index).filter((index) => entities[index].kind in FIGURES);
  return drawn.sort((a, b) => ORDER.indexOf(entities[a].kind) - ORDER.indexOf(entities[b].kind) || a - b);
}

/** Draw an entity that is not simulated as a pale dashed ring. */
export function drawLeftOut(pen, at) {
  const { context } = pen;
  context.save();
  context.globalAlpha = 0.55;
  context.setLineDash([3, 2.4]);
  pen.ring(at, 9, 1.2, pen.colours.muted);
  context.restore();
}

export function drawEntity(pen, entity, look) {
  FIGURES[entity.kind](pen, entity, look);
}
