/* Colours of the page's theme, and simple shapes in level coordinates; the twin of nppsim/pictures/canvas.py. */

const NAMES = [
  "open", "tile", "rim", "ink", "steel", "pale", "blue", "gold", "gold-edge", "red", "amber", "cyan", "green", "band",
  "trace", "muted",
];

for (const name of NAMES) { // so that the browser resolves light-dark() to the colour of the theme
  CSS.registerProperty({ name: `--scene-${name}`, syntax: "<color>", inherits: true, initialValue: "gray" });
}

/** The colours that an element's theme gives to levels: the custom properties --scene-*, without that prefix. */
export function coloursOf(element) {
  const style = getComputedStyle(element);
  return Object.fromEntries(NAMES.map((name) => [name, style.getPropertyValue(`--scene-${name}`).trim()]));
}

/** Points around the origin, turned by an angle (radians, clockwise on screen) and moved to a centre. */
export function turned(points, angle, [x, y]) {
  const [c, s] = [Math.cos(angle), Math.sin(angle)];
  return points.map(([a, b]) => [x + c * a - s * b, y + s * a + c * b]);
}

/** Draws onto a 2D context whose unit is the level's pixel.  colours: from coloursOf. */
export class Pen {
  constructor(context, colours) {
    this.context = context;
    this.colours = colours;
    context.lineCap = context.lineJoin = "round";
  }

  disc([x, y], radius, fill) {
    const c = this.context;
    c.beginPath();
    c.arc(x, y, radius, 0, 2 * Math.PI);
    c.fillStyle = fill;
    c.fill();
  }

  /** A circle line whose outer edge has the given radius. */
  ring([x, y], radius, width, colour) {
    const c = this.context;
    c.beginPath();
    c.arc(x, y, radius - width / 2, 0, 2 * Math.PI);
    c.lineWidth = width;
    c.strokeStyle = colour;
    c.stroke();
  }

  line(points, colour, width) {
    const c = this.context;
    c.beginPath();
    points.forEach(([x, y], i) => (i ? c.lineTo(x, y) : c.moveTo(x, y)));
    c.lineWidth = width;
    c.strokeStyle = colour;
    c.stroke();
  }

  polygon(points, fill) {
    const c = this.context;
    c.beginPath();
    for (const [x, y] of points) c.lineTo(x, y);
    c.closePath();
    c.fillStyle = fill;
    c.fill();
  }

  /** A square around a centre.  half: of its side, with the edge; fill, edge: null leaves that part out. */
  box([x, y], half, fill, edge = null, width = 1.5, corner = 0) {
    const c = this.context;
    const inside = edge ? half - width / 2 : half;
    c.beginPath();
    c.roundRect(x - inside, y - inside, 2 * inside, 2 * inside, edge ? Math.max(corner - width / 2, 0) : corner);
    if (fill) {
      c.fillStyle = fill;
      c.fill();
    }
    if (edge) {
      c.lineWidth = width;
      c.strokeStyle = edge;
      c.stroke();
    }
  }
}
