/* State from the frame documents of one stream: the entities of a level and the ninja. */

import { MOVING } from "./figures.js";
import { Gait } from "./ninja.js";

/** looks: of each entity (figures.js); ninja: its look; frame: the last frame document; version: grows when an entity that
 *  does not move changes. */
export class World {
  constructor(level) {
    this.level = level;
    this.version = 0;
    this.reset();
  }

  /** As before the first frame. */
  reset() {
    this.looks = [];
    this.gait = new Gait();
    this.apply(this.level.start);
  }

  /** Take in a frame document. */
  apply(frame) {
    for (const [index, values] of Object.entries(frame.c)) this.change(Number(index), values);
    this.ninja = this.gait.after(frame.n, frame.i);
    this.frame = frame;
  }

  /** Take in the new state of one entity.  values: [bits, x, y], of laser turrets also the end of the beam. */
  change(index, [bits, x, y, endX, endY]) {
    const entity = this.level.entities[index];
    const own = (bits >> 1) & 7;
    this.looks[index] = {
      x,
      y,
      active: (bits & 1) === 1,
      closed: entity.kind === "exit door" ? this.barred(entity) : ((bits >> 4) & 1) === 1,
      state: own > 3 ? own - 8 : own,
      end: endX === undefined ? null : [endX, endY],
    };
    if (entity.exit !== undefined && this.looks[entity.exit]) {
      this.looks[entity.exit] = { ...this.looks[entity.exit], closed: (bits & 1) === 1 };
    }
    if (!MOVING.has(entity.kind)) this.version += 1;
  }

  /** An exit opens when its switch is taken; without one it stays barred. */
  barred(exit) {
    return this.looks[exit.switch]?.active ?? true;
  }
}
