/* Colours of the theme, and simple shapes in level coordinates; nppsim/pictures/canvas.py does the same in Python. */

const NAMES = [
  "open",
  "tile",
  "rim",
  "ink",
  "steel",
  "pale",
  "blue",
  "gold",
  "gold-edge",
  "red",
  "amber",
  "cyan",
  "green",
  "band",
  "trace",
  "muted",
];

for (const name of NAMES) {
  // registered properties resolve light-dark() to the colour of the theme
  CSS.registerProperty({ name: `--scene-${name}`, syntax: "<color>", inherits: true, initialValue: "gray" });
}

/** Return the colours of levels in an element's theme: name (without the prefix --scene-) -> CSS colour. */
export function coloursOf(element) {
  const style = getComputedStyle(element);
  return Object.fromEntries(NAMES.map((name) => [name, style.getPropertyValue(`--scene-${name}`).trim()]));
}

/** Call a function whenever the theme changes; return a function that removes the listeners. */
export function onThemeChange(listener) {
  const darkness = matchMedia("(prefers-color-scheme: dark)");
  darkness.addEventListener("change", listener);
  document.addEventListener("themechange", listener);
  return () => {
    darkness.removeEventListener("change", listener);
    document.removeEventListener("themechange", listener);
  };
}

/** Draws shapes onto a 2D context in level coordinates.  colours: from coloursOf. */
export class Pen {
  constructor(context, colours) {
    this.context = context;
    this.colours = colours;
    context.lineCap = context.lineJoin = "round";
  }

  /** @type {(centre: number[], radius: number, fill: string) => void} */
  disc([x, y], radius, fill) {
    const c = this.context;
    c.beginPath();
    c.arc(x, y, radius, 0, 2 * Math.PI);
    c.fillStyle = fill;
    c.fill();
  }

  /** Draw a circle line whose outer edge has the given radius. */
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

  /** Draw a square.  half: half its side, with the edge; fill, edge: colours, or null; width: of the edge; corner:
   *  radius. */
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
