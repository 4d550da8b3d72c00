/* State of a level's entities and of the ninja, as they are drawn. */

import { MOVING } from "./figures.js";
import { Gait } from "./ninja.js";

/** looks: look of each entity (figures.js).  ninja: look of the ninja.  version: increases when a static entity
 *  changes. */
export class World {
  constructor(level) {
    this.entities = level.entities;
    this.version = 0;
    this.looks = [];
    this.ninja = new Gait().after(level.start.ninja, 0);
    level.start.looks.forEach((look, index) => this.change(index, look));
  }

  /** Apply the new state of an entity: [bits, x, y], for lasers, turrets and shooting drones also the aim
   *  (figures.js). */
  change(index, [bits, x, y, ...aim]) {
    const entity = this.entities[index];
    const own = (bits >> 1) & 7;
    this.looks[index] = {
      x,
      y,
      active: (bits & 1) === 1,
      closed: entity.kind === "exit door" ? this.barred(entity) : ((bits >> 4) & 1) === 1,
      state: own > 3 ? own - 8 : own,
      aim: aim[2] ? aim : null,
    };
    if (entity.exit !== undefined && this.looks[entity.exit]) {
      this.looks[entity.exit] = { ...this.looks[entity.exit], closed: (bits & 1) === 1 };
    }
    if (!MOVING.has(entity.kind)) this.version += 1;
  }

  /** Return whether an exit is closed: until its switch is taken, or always if it has none. */
  barred(exit) {
    return this.looks[exit.switch]?.active ?? true;
  }
}
