/* Table of the ninja's state, a row per frame around the cursor.
 *
 * Row f is the state after f frames; its keys are those of frame f of the piano roll, which lead to the next row.
 */

import { score } from "./clock.js";
import { div, element } from "./elements.js";
import { INPUTS } from "./input_byte.js";

const STATES = [
  "standing",
  "running",
  "braking",
  "jumping",
  "falling",
  "wall sliding",
  "dead",
  "dying",
  "celebrating",
  "disabled",
];
const HEADS = {
  frame: "frames since the start",
  keys: "keys of this frame",
  x: "px, to the right",
  y: "px, downward",
  vx: "px per frame",
  vy: "px per frame, downward",
  state: "",
  contact: "floor, wall (side) and ceiling that the ninja touches",
  jump: "frames of this jump",
  "buffers j f w p": "frames since the press of jump, the floor, the wall, the launch pad; – : none",
  gold: "pieces collected",
  clock: "seconds left in the game",
  note: "markers",
};
const AROUND = 30; // rows before and after the cursor

export class StateTable {
  /** seek: called with a frame that is clicked. */
  constructor(seek) {
    this.body = element("tbody");
    const heads = Object.entries(HEADS).map(([text, title]) => element("th", { scope: "col", text, title }));
    this.root = div("state-table", element("table", {}, element("thead", {}, element("tr", {}, heads)), this.body));
    this.body.addEventListener("click", ({ target }) => {
      const row = target.closest("tr");
      if (row) seek(Number(row.dataset.frame));
    });
  }

  /** Show the rows around a frame.  run: a Recording.  markers: [{frame, note}]. */
  show(run, cursor, markers) {
    const first = Math.max(cursor - AROUND, 0);
    const rows = run.states(first, Math.min(cursor + AROUND, run.frames));
    this.body.replaceChildren(...rows.map((ninja, i) => this.row(ninja, first + i, run, cursor, markers)));
    const current = /** @type {HTMLElement} */ (this.body.children[cursor - first]);
    if (current) this.root.scrollTop = current.offsetTop - this.root.clientHeight / 2;
  }

  row(ninja, frame, run, cursor, markers) {
    const byte = run.inputs[frame] ?? 0;
    const buffer = (frames) => (frames < 0 ? "–" : frames);
    const cells = [
      frame,
      INPUTS.map(({ bit, label }) => (byte & bit ? (label === "jump" ? "J" : label) : "·")).join(""),
      ...[ninja.x, ninja.y, ninja.vx, ninja.vy].map((value) => value.toFixed(3)),
      STATES[ninja.state],
      [
        ninja.airborne ? null : "floor",
        ninja.walled ? (ninja.wall_normal > 0 ? "wall ←" : "wall →") : null,
        ninja.ceiling_count > 0 ? "ceiling" : null,
      ]
        .filter(Boolean)
        .join(", "),
      ninja.hold,
      [ninja.jump_buffer, ninja.floor_buffer, ninja.wall_buffer, ninja.pad_buffer].map(buffer).join(" "),
      ninja.gold,
      score(frame, ninja.gold).toFixed(3),
      markers
        .filter((marker) => marker.frame === frame)
        .map(({ note }) => note)
        .join("; "),
    ];
    return element(
      "tr",
      { "data-frame": frame, "aria-current": frame === cursor },
      cells.map((text) => element("td", { text })),
    );
  }
}
