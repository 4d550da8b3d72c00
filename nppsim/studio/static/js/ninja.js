/* The ninja: a small figure with a headband that fits its collision circle of radius 10 px.
 *
 * Its pose depends on earlier frames (direction, stride, tilt on slopes), so a Gait follows a run frame by frame.  A
 * look is {at, state, facing, stride, tilt, pose}; pose contains the angles below.
 */

import { LEFT, RIGHT } from "./input_byte.js";
import { turned } from "./arrays.js";

const [STANDING, RUNNING, BRAKING, JUMPING, FALLING, WALL_SLIDING, DEAD, DYING, CELEBRATING, DISABLED] =
  Array(10).keys();
const STRIDE_PX = 5.2; // distance per radian of the stride
const EASE = 0.4; // fraction of the change to a new pose, per frame

// Angles of the upper and lower part of front leg, back leg, front arm and back arm: radians from straight down,
// forward positive.  The last angle is the lean of the trunk.
const POSES = {
  [STANDING]: [0.16, 0.1, -0.16, -0.16, 0.3, 0.45, -0.35, -0.1, 0.04],
  [BRAKING]: [0.95, 0.55, 0.35, -0.45, 0.9, 1.6, -1.0, -0.7, -0.3],
  [JUMPING]: [1.15, -0.35, -0.25, -0.75, 2.4, 2.9, -0.9, -0.4, 0.1],
  [FALLING]: [0.75, -0.25, -0.45, -1.0, 1.9, 2.3, -1.9, -2.2, 0.05],
  [WALL_SLIDING]: [0.95, -0.75, 0.15, -0.95, 2.3, 2.6, 0.9, 1.7, 0.1],
  [CELEBRATING]: [0.32, 0.12, -0.32, -0.12, 2.5, 2.85, -2.5, -2.85, 0],
};
POSES[DISABLED] = POSES[STANDING];
// Height of the hip below the centre, and lengths, px.
const [HIP, THIGH, SHIN, ARM, TRUNK] = [1.8, 4.2, 4.3, 3.5, 5.4];

function running(stride) {
  const [swing, lift] = [Math.sin(stride), Math.cos(stride)];
  return [
    0.95 * swing + 0.15,
    0.95 * swing - 0.25 - 0.9 * Math.max(lift, 0),
    -0.95 * swing + 0.15,
    -0.95 * swing - 0.25 - 0.9 * Math.max(-lift, 0),
    -0.9 * swing,
    -0.9 * swing + 1,
    0.9 * swing,
    0.9 * swing + 1,
    0.26,
  ];
}

/** Computes the ninja's look for each frame of a run. */
export class Gait {
  constructor() {
    this.facing = 1;
    this.stride = 0;
    this.tilt = 0;
    this.pose = POSES[STANDING];
  }

  /** Return the look after the next frame.
   *  @param {number[]} ninja - ninjaOf (documents.js)  @param {number} keys - input byte */
  after([x, y, vx, , state, floorX, floorY, airborne], keys) {
    const wanted = keys & LEFT ? -1 : keys & RIGHT ? 1 : 0;
    if ((state === RUNNING || state === WALL_SLIDING) && wanted) this.facing = wanted;
    else if (state !== WALL_SLIDING && Math.abs(vx) > 0.01) this.facing = Math.sign(vx);
    this.stride += Math.abs(vx) / STRIDE_PX;
    if (!airborne) this.tilt = Math.atan2(floorY, floorX) + Math.PI / 2;
    else this.tilt = state === JUMPING || state === WALL_SLIDING ? 0 : 0.9 * this.tilt;
    const goal = state === RUNNING ? running(this.stride) : (POSES[state] ?? this.pose);
    this.pose = this.pose.map((angle, i) => angle + EASE * (goal[i] - angle));
    return { at: [x, y], state, facing: this.facing, stride: this.stride, tilt: this.tilt, pose: this.pose };
  }
}

/** Draw the ninja.  colour: colour of the body; band: colour of the headband; age: frames since its death, if it
 *  died. */
export function drawNinja(pen, look, colour = pen.colours.ink, band = pen.colours.band, age = 0) {
  if (look.state === DEAD || look.state === DYING) {
    drawFallen(pen, look.at, colour, band, age);
    return;
  }
  const { pose, facing, tilt, at } = look;
  const lean = pose[8];
  const hip = [0, HIP];
  const neck = [TRUNK * Math.sin(lean), HIP - TRUNK * Math.cos(lean)];
  const head = [neck[0] + 3.4 * Math.sin(lean), neck[1] - 3 * Math.cos(lean)];
  const shoulder = [neck[0] * 0.85, neck[1] + 0.9];
  const place = (points) =>
    turned(points.map(([a, b]) => [a * facing, b]), tilt, at);
  const limb = (start, part, upper, lower, width) => {
    const [a, b] = [pose[part], pose[part + 1]];
    const joint = [start[0] + upper * Math.sin(a), start[1] + upper * Math.cos(a)];
    const end = [joint[0] + lower * Math.sin(b), joint[1] + lower * Math.cos(b)];
    pen.line(place([start, joint, end]), colour, width);
  };
  limb(shoulder, 6, ARM, ARM, 1.7);
  limb(hip, 2, THIGH, SHIN, 2.1);
  pen.line(place([hip, neck]), colour, 2.8);
  limb(hip, 0, THIGH, SHIN, 2.1);
  limb(shoulder, 4, ARM, ARM, 1.7);
  const [x, y] = head;
  const flutter = 0.8 * Math.sin(2 * look.stride);
  pen.line(place([[x - 2.4, y - 0.3], [x - 4.6, y + 0.2 + flutter], [x - 6.4, y - 0.4 - flutter]]), band, 1.3);
  pen.disc(place([head])[0], 2.9, colour);
  pen.line(place([[x - 2.1, y - 0.5], [x + 2.3, y - 0.3]]), band, 1.2);
}

function drawFallen(pen, [x, y], colour, band, age) {
  const time = Math.min(age, 40);
  for (let i = 0; i < 9; i++) {
    const angle = (2 * Math.PI * i) / 9 + 0.3;
    const reach = 5 + (4 * ((i * 5) % 9)) / 9 + time * (0.35 + 0.12 * ((i * 7) % 5));
    const spin = angle + 0.06 * time * (i % 2 ? 1 : -1);
    const far = [x + reach * Math.cos(angle), y + reach * Math.sin(angle) + 0.02 * time * time];
    pen.line([far, [far[0] - 3.4 * Math.cos(spin), far[1] - 3.4 * Math.sin(spin)]], i % 3 ? colour : band, 1.8);
  }
  pen.disc([x + 1, y + 1.5 + 0.03 * time * time], 2.6, colour);
}
