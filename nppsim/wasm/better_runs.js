/* Search for better runs than a known one, as nppsim/planner/gold.py and order.py: the same steps with the same random
 * numbers.
 */

import { Search, beamSearch, withGoals } from "./planner.js";
import { Random } from "./random.js";

const [EXIT, EXIT_SWITCH, GOLD] = [3, 4, 2]; // types of entities
const FRAMES_PER_SECOND = 60;
const START_FRAMES = 90 * FRAMES_PER_SECOND; // time on the game's clock at the spawn
const FRAMES_PER_GOLD = 2 * FRAMES_PER_SECOND;
const WIDTHS = [64, 128, 192];
const SHORTENING_WIDTHS = [192, 384, 768];
const FIRST_WIDTH = 128;
const PATIENCE = 240; // frames
const SLACK = 16; // decisions
const [DRAFTS, DRAFT_SHARE] = [6, 0.3];
const NEAR = 0.5;
const MIN_WORTH = 0.6;
const MAX_PATH = 8000; // px
const GAIN = 1e-6; // px

/** Rank of a run; lower is better, the first number before the second. */
export function rank(objective, frames, gold) {
  if (objective === "all-gold") return [-gold, frames];
  return [frames - (objective === "score" ? FRAMES_PER_GOLD * gold : 0), frames];
}

export class RunSearch {
  /** @type {Lengths} */
  lengths;
  /** @type {{actions: any, inputs: Uint8Array}} */
  best;
  /** @type {number[]} */
  types; // of the entities
  /** @type {number[]} */
  goals; // entities: gold and the exit switch
  /** @type {number[]} */
  gold; // goals that are gold
  /** @type {number[]} */
  order; // goals that the best run collects
  /** @type {number[]} */
  arrivals; // decisions at which it collects them
  pace = 0; // frames per px
  bestGold = 0;

  /** found: a PlannedRun.  settings: those of the planner, with start.  progress: receives the frames simulated. */
  constructor(planner, found, { objective, frameSkip, seed, minHold, start }, progress = (_) => {}) {
    this.planner = planner;
    this.progress = progress;
    this.objective = objective;
    this.frameSkip = frameSkip;
    this.minHold = minHold;
    this.start = start;
    this.foundSimulated = found.simulated;
    this.simulated = 0;
    this.budget = 0;
    this.fromStart = false;
    this.random = new Random(seed);
    this.setGoals();
    this.failures = this.goals.map(() => 0);
    this.setBest(found);
  }

  /** Yield the best run after each step. */
  *runs(budget) {
    yield this.run;
    if (!this.gold.length && this.objective !== "time") return;
    this.budget = budget;
    if (this.objective !== "time" && budget > 0) yield* this.draft();
    while (this.left) {
      this.step();
      yield this.run;
    }
  }

  get left() {
    return Math.max(this.budget - this.simulated, 0);
  }

  /** The best run so far. */
  get run() {
    const { actions, inputs } = this.best;
    return { actions, inputs, gold: this.bestGold, simulated: this.foundSimulated + this.simulated };
  }

  setGoals() {
    const { planner, start } = this;
    const { kernels, game, sequence, world } = planner;
    const { frame, gold, x, y, switch_taken: before } = planner.played(start, []);
    this.firstFrame = frame;
    this.firstGold = gold;
    const placed = Array.from({ length: game.entityCount }, (_, i) => ({ ...kernels.record(world.entity, i) }));
    this.types = placed.map(({ type }) => type);
    const all = [...this.types.keys()];
    const { entities } = game;
    const active = all.filter((i) => entities[i].active);
    const switches = active.filter((i) => this.types[i] === EXIT_SWITCH);
    const exits = all.filter((i) => this.types[i] === EXIT);
    let goals = active.filter((i) => this.types[i] === GOLD);
    if (exits.length === 1) goals.push(...switches.slice(0, 1));
    if (this.objective === "time") goals = [];
    const mark = kernels.mark();
    const { rows: own, state: states } = planner.makeStates(1);
    kernels.bytes(own).set(start);
    const whole = withGoals(
      kernels,
      sequence,
      goals,
      goals.map(() => 0),
    );
    const points = kernels.array("float64", [goals.length + 1, 2]);
    const out = kernels.array("float64", [goals.length + 1]);
    kernels.values(points).set([x, y, ...goals.flatMap((i) => [placed[i].x, placed[i].y])]);
    const lengths = (leg) => {
      kernels.call("path_lengths", { leg, states, world, sequence: whole, points, out });
      return [...kernels.values(out)];
    };
    const between = goals.map((_, leg) => lengths(leg)); // [to][from]
    for (const taken of [1, before]) {
      kernels.record(states.ninja, 0).switch_taken = taken;
      between.push(lengths(goals.length));
    }
    kernels.release(mark);
    const reached = [...goals.keys()].filter((i) => between[i][0] < MAX_PATH);
    const columns = [...reached, goals.length, goals.length + 1];
    this.goals = reached.map((i) => goals[i]);
    this.gold = [...this.goals.keys()].filter((i) => this.types[this.goals[i]] === GOLD);
    const others = [...this.goals.keys()].filter((i) => !this.gold.includes(i));
    const rows = [0, ...reached.map((i) => i + 1)].map((from) => columns.map((to) => between[to][from]));
    this.lengths = new Lengths(rows, others[0] ?? null, before !== 0);
  }

  /** Set the best run, and find out when it collects which goals. */
  setBest({ actions, inputs }) {
    const { frameSkip, start } = this;
    const { game } = this.planner;
    this.best = { actions, inputs };
    this.order = [];
    this.arrivals = [];
    game.restore(start);
    const taken = this.goals.map(() => false);
    for (let decision = 0; decision < actions.length; decision++) {
      game.play(inputs.subarray(decision * frameSkip, (decision + 1) * frameSkip));
      this.goals.forEach((entity, goal) => {
        if (taken[goal] || game.kernels.record(game.state.entities, 0, entity).active) return;
        taken[goal] = true;
        this.order.push(goal);
        this.arrivals.push(decision);
      });
    }
    this.bestGold = game.ninja.gold;
    this.pace = inputs.length / Math.max(this.lengths.total(this.order), 1); // frames per px
  }

  /** Frames from the start after which the game's clock is at 0, if a run collects ``gold`` pieces. */
  clock(gold) {
    return START_FRAMES + FRAMES_PER_GOLD * gold - this.firstFrame;
  }

  goldOf(order) {
    return this.firstGold + order.filter((goal) => this.gold.includes(goal)).length;
  }

  /** Length of the longest run that collects the goals of an order and is better than the best run. */
  mostFrames(order) {
    const best = this.best.inputs.length;
    if (this.objective === "time") return best - 1;
    const gold = this.goldOf(order);
    if (this.objective === "score")
      return Math.min(this.clock(gold), best + FRAMES_PER_GOLD * (gold - this.bestGold) - 1);
    return gold <= this.bestGold ? Math.min(this.clock(gold), best - 1) : this.clock(gold);
  }

  /** Search for a run along an order that begins with ``cut`` decisions of the best run; return {run}, or {reached}:
   *  the number of goals that the search has reached. */
  play(order, cut, mostFrames, params) {
    const { planner, frameSkip, start } = this;
    const { kernels } = planner;
    const before = this.best.inputs.subarray(0, cut * frameSkip);
    planner.played(start, before);
    const row = planner.game.snapshot();
    const mark = kernels.mark();
    const earlier = this.foundSimulated + this.simulated;
    const goals = order.map((goal) => this.goals[goal]);
    const sequence = withGoals(kernels, planner.sequence, goals, this.lengths.legs(order).slice(1));
    const search = new Search(
      planner,
      frameSkip,
      row,
      this.random,
      { ...params, min_hold: this.minHold, time_cost: 0 },
      sequence,
      (simulated) => this.progress(earlier + simulated),
    );
    const decisions = Math.ceil((mostFrames - before.length) / frameSkip);
    const patience = this.objective === "time" ? Infinity : Math.ceil(PATIENCE / frameSkip);
    const end = beamSearch(search, decisions, this.left, patience);
    kernels.release(mark);
    this.simulated += Math.max(search.simulated, 1);
    if (end === null) return { reached: search.leg };
    const inputs = new Uint8Array([...before, ...end.inputs]);
    const run = { actions: [...this.best.actions.slice(0, cut), ...end.actions], inputs };
    const { gold } = planner.played(start, inputs);
    const inTime = this.objective === "time" || inputs.length <= this.clock(gold);
    const [a, b] = [
      rank(this.objective, inputs.length, gold),
      rank(this.objective, this.best.inputs.length, this.bestGold),
    ];
    if (inTime && (a[0] < b[0] || (a[0] === b[0] && a[1] < b[1]))) this.setBest(run);
    return { run };
  }

  /** Play orders from the start, each without the goals that earlier beams failed to reach; yield the best run. */
  *draft() {
    let wanted = this.objective === "all-gold" ? this.lengths.withSwitch(this.gold) : this.worthwhile();
    for (let turn = 0; turn < DRAFTS; turn++) {
      const order = this.lengths.shortest(wanted);
      if (this.simulated > DRAFT_SHARE * this.budget || (turn && !order.length)) return;
      const most = this.clock(this.goldOf(order));
      const { run, reached } = this.play(order, 0, most, { width: FIRST_WIDTH, noise: 12, fill: 0.5, momentum: 4 });
      yield this.run;
      if (run || !order.length) return;
      const failed = order[Math.min(reached, order.length - 1)];
      this.failures[failed] += 1;
      wanted = this.lengths.withSwitch(order).filter((goal) => goal !== failed);
    }
  }

  /** A short order of all goals, without gold whose estimated detour costs more than it is worth. */
  worthwhile() {
    const { lengths } = this;
    const order = [...lengths.withSwitch(lengths.shortest(lengths.withSwitch(this.gold)))];
    while (order.length > 1) {
      const saved = lengths.savings(order).map((px, i) => (this.gold.includes(order[i]) ? px : -Infinity));
      const worst = saved.indexOf(Math.max(...saved));
      if (saved[worst] * this.pace <= FRAMES_PER_GOLD) break;
      order.splice(worst, 1);
    }
    return order;
  }

  /** Change the order of the best run and play it from the change, or play the same order from a random decision. */
  step() {
    const { random, lengths, objective } = this;
    /** @type {(() => any[])[]} */
    const moves = [() => [this.order, null]];
    if (objective !== "time")
      moves.push(
        () => this.add(),
        () => this.reorder(),
      );
    if (objective === "score") moves.push(() => this.drop());
    const [changed, added] = moves[random.integers(moves.length)]();
    const order = lengths.withoutLastSwitch(changed);
    this.fromStart = objective === "time" && !this.fromStart;
    let common = 0;
    while (common < Math.min(order.length, this.order.length) && order[common] === this.order[common]) common++;
    let cut = 0;
    if (!this.fromStart && this.minHold <= 1) {
      if (equal(order, lengths.withoutLastSwitch(this.order))) cut = random.integers(this.best.actions.length);
      else cut = Math.max((common ? this.arrivals[common - 1] : 0) - random.integers(SLACK), 0);
    }
    const params = {
      width: random.choice(objective === "time" ? SHORTENING_WIDTHS : WIDTHS),
      noise: random.choice([2, 12]),
      fill: random.choice([0, 0.5]),
      momentum: random.choice([0, 4, 8, 16]),
    };
    const { run } = this.play(order, cut, this.mostFrames(order), params);
    if (added !== null && !run) this.failures[added] += 1;
  }

  /** Insert gold: a piece with few failures and a short detour, and at random also the pieces near it. */
  add() {
    const { lengths, random, failures } = this;
    const before = lengths.withSwitch(this.order);
    let order = before;
    let rest = this.gold.filter((goal) => !order.includes(goal));
    if (!rest.length) return [this.order, null];
    let [added, positions] = lengths.cheapest(order, rest);
    const ranked = [...rest.keys()].sort((a, b) => failures[rest[a]] - failures[rest[b]] || added[a] - added[b]);
    let i = ranked[Math.min(random.geometric(0.5) - 1, ranked.length - 1)];
    const first = rest[i];
    const near = random.random() < 0.5 ? (NEAR * FRAMES_PER_GOLD) / this.pace : 0;
    while (true) {
      order = order.toSpliced(positions[i], 0, rest[i]);
      rest = rest.toSpliced(i, 1);
      if (!rest.length) break;
      [added, positions] = lengths.cheapest(order, rest);
      i = added.indexOf(Math.min(...added));
      if (added[i] >= near) break;
    }
    const detour = this.pace * (lengths.total(order) - lengths.total(before));
    if (this.objective === "score" && MIN_WORTH * detour > FRAMES_PER_GOLD * (order.length - before.length))
      return [this.order, null];
    return [order, first];
  }

  /** Leave out gold with a long detour, at random several pieces in a row. */
  drop() {
    const { order, random } = this;
    const dropped = [...order.keys()].filter((i) => this.gold.includes(order[i]));
    if (!dropped.length) return [order, null];
    const saved = this.lengths.savings(order);
    dropped.sort((a, b) => saved[b] - saved[a]);
    const first = dropped[Math.min(random.geometric(0.5) - 1, dropped.length - 1)];
    const end = first + random.geometric(0.5);
    return [order.filter((goal, i) => i < first || i >= end || !this.gold.includes(goal)), null];
  }

  /** Change the order at random, to the shortest of several orders. */
  reorder() {
    const order = this.lengths.withSwitch(this.order);
    if (order.length < 2) return [this.order, null];
    const others = Array.from({ length: 8 }, () => neighbour(order, this.random)).filter(
      (other) => !equal(other, order),
    );
    return [others.length ? shortestOf(this.lengths, others) : order, null];
  }
}

/** A random neighbour of an order with at least two goals. */
function neighbour(order, random) {
  const [i, j] = random.distinct(order.length + 1, 2).sort((a, b) => a - b);
  if (random.random() < 0.5) return [...order.slice(0, i), ...order.slice(i, j).reverse(), ...order.slice(j)];
  const moved = [...order];
  const [goal] = moved.splice(random.integers(moved.length), 1);
  moved.splice(random.integers(moved.length + 1), 0, goal);
  return moved;
}

/** The first of the orders with the shortest path. */
function shortestOf(lengths, orders) {
  let [best, least] = [orders[0], Infinity];
  for (const order of orders) {
    const total = lengths.total(order);
    if (total < least) [best, least] = [order, total];
  }
  return best;
}

const equal = (a, b) => a.length === b.length && a.every((value, i) => value === b[i]);

/** Path lengths in px between the start, n goals and the exit; see nppsim/planner/order.py. */
class Lengths {
  constructor(between, exitSwitch, switchTaken) {
    this.between = between;
    this.exitSwitch = exitSwitch;
    this.switchTaken = switchTaken;
  }

  /** Length of each leg of an order, including the last one to the exit. */
  legs(order) {
    const columns = [...order, this.exit(order)];
    return columns.map((column, i) => this.between[i ? order[i - 1] + 1 : 0][column]);
  }

  /** Column of the exit at the end of an order. */
  exit(order) {
    const afterSwitch = this.switchTaken || order.includes(this.exitSwitch);
    return this.between[0].length - (afterSwitch ? 2 : 1);
  }

  total(order) {
    return sum(this.legs(order));
  }

  /** For each of ``goals``: the smallest length that its insertion adds, and the position in the order. */
  cheapest(order, goals) {
    const [legs, columns] = [this.legs(order), [...order, this.exit(order)]];
    /** @type {number[][]} */
    const [least, positions] = [[], []];
    for (const goal of goals) {
      const added = columns.map(
        (column, i) => this.between[i ? order[i - 1] + 1 : 0][goal] + this.between[goal + 1][column] - legs[i],
      );
      least.push(Math.min(...added));
      positions.push(added.indexOf(least[least.length - 1]));
    }
    return [least, positions];
  }

  /** The length saved without each goal of the order. */
  savings(order) {
    const [legs, columns] = [this.legs(order), [...order, this.exit(order)]];
    return order.map((_, i) => legs[i] + legs[i + 1] - this.between[i ? order[i - 1] + 1 : 0][columns[i + 1]]);
  }

  /** A short order of ``goals``, which neither moving one goal nor reversing a part shortens. */
  shortest(goals) {
    let order = [];
    const inserted = (rest, goal) => rest.toSpliced(this.cheapest(rest, [goal])[1][0], 0, goal);
    for (const goal of [...goals].sort((a, b) => this.between[0][a] - this.between[0][b]))
      order = inserted(order, goal);
    let length = Infinity;
    while (this.total(order) < length - GAIN) {
      length = this.total(order);
      for (const goal of goals) {
        const rest = order.filter((other) => other !== goal);
        order = shortestOf(this, [order, inserted(rest, goal)]);
      }
      for (let i = 0; i < order.length - 1; i++) {
        const reversals = [];
        for (let j = i + 2; j <= order.length; j++)
          reversals.push([...order.slice(0, i), ...order.slice(i, j).reverse(), ...order.slice(j)]);
        order = shortestOf(this, [order, ...reversals]);
      }
    }
    return this.withoutLastSwitch(order);
  }

  /** The order with the exit switch, at the end if it is missing. */
  withSwitch(order) {
    return this.exitSwitch === null || order.includes(this.exitSwitch) ? order : [...order, this.exitSwitch];
  }

  /** The order without the exit switch if it is last. */
  withoutLastSwitch(order) {
    return order.length && order.at(-1) === this.exitSwitch ? order.slice(0, -1) : order;
  }
}

/** Sum with the rounding of numpy, which adds in pairs. */
function sum(values) {
  const n = values.length;
  if (n < 8) return values.reduce((total, value) => total + value, 0);
  if (n > 128) {
    const half = Math.floor(n / 2) - (Math.floor(n / 2) % 8);
    return sum(values.slice(0, half)) + sum(values.slice(half));
  }
  const parts = values.slice(0, 8);
  const whole = n - (n % 8);
  for (let i = 8; i < whole; i += 8) for (let k = 0; k < 8; k++) parts[k] += values[i + k];
  const [a, b, c, d, e, f, g, h] = parts;
  return values.slice(whole).reduce((total, value) => total + value, a + b + (c + d) + (e + f + (g + h)));
}
