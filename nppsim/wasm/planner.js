/* The planner in JavaScript: the loops of nppsim/planner around the same kernels.  It finds the same runs, byte for
 * byte.
 *
 *     const found = await findRun({ level, objective: "score", budget: 1_000_000 });
 *
 * Names are those of the Python modules plan, search and goal_sequence, which explain the method.
 */

import { RunSearch } from "./better_runs.js";
import { Game } from "./game.js";
import { Kernels, loadModule } from "./kernels.js";
import { compileLevel, computePaths } from "./level.js";
import { Random } from "./random.js";
import { gameStates } from "./states.js";

const ACTION_INPUT = [0, 4, 2, 1, 5, 3]; // input byte of each action
const PATH = 1; // mode of the kernel ``expand``
const NUM_ACTIONS = ACTION_INPUT.length;
const LOST = 1e12; // score of a child that is not used
const NUM_REGIONS = 1 << 18;
const NUM_FIELDS = 512; // path fields that a goal sequence stores
const NUM_NODES = 4539; // points of the lattice of path fields
const GOAL_BONUS = 24; // px
const BEAM = 384; // width of the beam, in states
const BEAM_SHARE = 0.3; // fraction of the budget for the beam search
const BEST_FIRST = { width: 1, noise: 2, fill: 8, momentum: 0, min_hold: 1, time_cost: 0.8 };
const FILLS = [8, 3, 20]; // by seed
const OPEN_STATES = 20_000; // maximum number of open states of a best-first search, and of their bytes
const OPEN_BYTES = 2 ** 29;
const GAME_TIME = 5400; // frames, the time limit of a level at least
const MAX_PATH = 8000; // px
const MOST_EXPANSIONS = 4096; // per call of the kernel ``best_first``
const DEFAULTS = { objective: "time", frameSkip: 4, budget: 5_000_000, seed: 0, minHold: 1, noise: 12, known: null };

/**
 * A run that wins on its last frame.
 * @typedef {object} PlannedRun
 * @property {number[]} actions
 * @property {Uint8Array} inputs - one byte per frame
 * @property {number} gold - pieces collected at the end
 * @property {number} simulated - frames that the search simulated
 */

/**
 * Search for a run that finishes a level, from the spawn or from the state after ``inputs``.
 * @param {Record<string, any>} request - {level: a Level of level.js, inputs: bytes, modules: {game, planner} if the
 *   caller has loaded them}, and settings as in DEFAULTS
 * @param {(simulated: number, best?: PlannedRun) => void} [progress] - is called repeatedly with the frames simulated
 *   so far, and with the best run so far if it may be improved
 * @returns {Promise<Record<string, any>>} {state: "found", inputs, gold, simulated, route: positions [x, y] of the
 *   ninja, px}, without the frames of the given inputs, or {state: "none"}, or {state: "barred"} if no path leads to
 *   an exit
 */
export async function findRun({ level, inputs = [], modules, ...settings }, progress = () => {}) {
  modules ??= { game: await loadModule("game"), planner: await loadModule("planner") };
  const kernels = new Kernels(modules.game);
  const compiled = compileLevel(kernels, level);
  const paths = computePaths(kernels, compiled, GAME_TIME);
  const game = new Game(modules.game, compiled);
  game.play(inputs);
  if (game.outcome !== "running") throw new Error("the run has ended there; give an earlier frame");
  const start = game.snapshot();
  const planner = new Planner(new Kernels(modules.planner), game, paths);
  const run = planner.plan({ ...settings, start }, progress);
  if (!run) return { state: planner.reachable ? "none" : "barred" };
  game.restore(start);
  const place = () => [game.ninja.x, game.ninja.y].map((px) => Math.round(10 * px) / 10);
  const route = [place()];
  for (const input of run.inputs) {
    game.play([input]);
    route.push(place());
  }
  return { state: "found", inputs: run.inputs, gold: run.gold, simulated: run.simulated, route };
}

export class Planner {
  /**
   * @param {Kernels} kernels - of the module "planner"
   * @param {Game} game - plays the level
   * @param {any} paths - ``computePaths`` of the level, with GAME_TIME
   */
  constructor(kernels, game, paths) {
    this.kernels = kernels;
    this.game = game;
    this.world = kernels.copyIn(game.kernels.copyOut(game.world));
    const number = (bytes, Type) => new Type(bytes.buffer, bytes.byteOffset, 1)[0];
    this.reachable = number(paths.length.bytes, Float32Array) < MAX_PATH;
    this.timeLimit = number(paths.time_limit.bytes, Int32Array);
    this.sequence = makeSequence(kernels, this.world, paths);
  }

  /**
   * Find a run; null if there is none within the budget of simulated frames.
   * @param {Record<string, any>} settings - as in DEFAULTS, and start: state to plan from, as ``Game.snapshot``
   *   returns it.  known: inputs of a run to improve, with the same frameSkip (better_runs of nppsim/planner/gold.py)
   * @param {(simulated: number, best?: PlannedRun) => void} progress
   * @returns {PlannedRun | null}
   */
  plan(settings, progress) {
    /** @type {any} */
    const all = { ...DEFAULTS, ...settings };
    let run = all.known ? this.knownRun(all) : this.fastRun(all, progress);
    if (run === null || (all.objective === "time" && !all.known)) return run;
    for (run of new RunSearch(this, run, all, progress).runs(all.budget - run.simulated)) progress(run.simulated, run);
    return run;
  }

  knownRun({ known, frameSkip, start }) {
    const inputs = Uint8Array.from(known);
    const decisions = Math.ceil(inputs.length / frameSkip);
    const actions = Array.from({ length: decisions }, (_, i) => ACTION_INPUT.indexOf(inputs[frameSkip * i]));
    return { actions, inputs, simulated: 0, gold: this.played(start, inputs).gold };
  }

  fastRun({ frameSkip, minHold, noise, seed, budget, start }, progress) {
    const { kernels } = this;
    const maxDecisions = Math.floor((this.timeLimit - this.played(start, []).frame) / frameSkip);
    if (!this.reachable || maxDecisions < 1) return null;
    const mark = kernels.mark();
    const random = new Random(seed);
    const params = { width: BEAM, noise, fill: 0.5, momentum: 4, min_hold: minHold, time_cost: 0 };
    const search = new Search(this, frameSkip, start, random, params, this.sequence, progress);
    let won = beamSearch(search, maxDecisions, Math.trunc(BEAM_SHARE * budget));
    let { simulated } = search;
    kernels.release(mark);
    if (won === null && simulated < budget) {
      const own = {
        ...BEST_FIRST,
        noise: Math.min(noise, BEST_FIRST.noise),
        fill: FILLS[seed % FILLS.length],
        min_hold: minHold,
      };
      const bestFirst = new BestFirst(this, frameSkip, start, random, own, budget - simulated);
      won = bestFirst.run((count) => progress(search.simulated + count));
      simulated += bestFirst.simulated;
      kernels.release(mark);
    }
    return won && { ...won, simulated, gold: this.played(start, won.inputs).gold };
  }

  /** Play inputs on from a state; return the fields of the ninja at the end. */
  played(start, inputs) {
    this.game.restore(start);
    this.game.play(inputs);
    return this.game.ninja;
  }

  /** States as ``decision.make_states`` makes them: {rows: their bytes, state: views of their parts}. */
  makeStates(count) {
    return gameStates(this.kernels, this.world, count);
  }
}

/** The goal sequence without goals. */
function makeSequence(kernels, world, { nodes, effects }) {
  return {
    goals: kernels.array("int64", [0]),
    lengths: kernels.array("float64", [1]),
    world: { ...world, entity: kernels.copyIn(kernels.copyOut(world.entity)) },
    nodes: kernels.copyIn({ ...nodes, shape: [NUM_NODES] }),
    effects: kernels.copyIn(effects),
    keys: kernels.array("int64", [NUM_FIELDS]),
    distance: kernels.array("uint16", [NUM_FIELDS, 2, NUM_NODES]),
    next_step: kernels.array("uint8", [NUM_FIELDS, 2, NUM_NODES]),
  };
}

/** A sequence with goals that shares the stored fields of another.  legs: px from each goal to the next one or the
 *  exit. */
export function withGoals(kernels, sequence, goals, legs) {
  const lengths = new Float64Array(goals.length + 1);
  for (let i = goals.length - 1; i >= 0; i--) lengths[i] = lengths[i + 1] + (legs[i] + GOAL_BONUS);
  const made = { goals: kernels.array("int64", [goals.length]), lengths: kernels.array("float64", [lengths.length]) };
  putIntegers(kernels, made.goals, goals);
  kernels.values(made.lengths).set(lengths);
  return { ...sequence, ...made };
}

/** Write small integers to an array of int64. */
function putIntegers(kernels, array, integers) {
  const halves = new Int32Array(kernels.exports.memory.buffer, array.address, 2 * integers.length);
  integers.forEach((value, i) => {
    halves[2 * i] = value;
    halves[2 * i + 1] = value >> 31;
  });
}

/** Actions from the root of a tree to ``node``, followed by ``action``. */
function actionsTo(parents, actions, node, action) {
  const backwards = [action];
  for (; node; node = parents[node]) backwards.push(actions[node]);
  return backwards.reverse();
}

/** The run of these actions; the last one is simulated for ``last`` frames. */
function winningRun(actions, last, frameSkip) {
  const inputs = new Uint8Array(frameSkip * (actions.length - 1) + last);
  actions.forEach((action, i) => inputs.fill(ACTION_INPUT[action], frameSkip * i, frameSkip * (i + 1)));
  return { actions, inputs };
}

/** Buffers and tree of one search in which all states are advanced together. */
export class Search {
  /** @type {Int32Array} */
  regions; // of the children, two words each
  /** @type {Int32Array} */
  legs; // of the children, two words each
  /** @type {any} */
  cells; // of the children

  constructor(planner, frameSkip, start, random, params, sequence, progress = (_) => {}) {
    this.planner = planner;
    this.frameSkip = frameSkip;
    this.random = random;
    this.progress = progress;
    this.params = params;
    this.sequence = sequence;
    const { kernels } = planner;
    const n = params.width * NUM_ACTIONS;
    this.parents = planner.makeStates(params.width);
    this.children = planner.makeStates(n);
    const integers = (length) => kernels.array("int64", [length]);
    this.out = {
      ...{ scores: kernels.array("float64", [n]), cells: integers(n), regions: integers(n) },
      ...{ frames: integers(n), legs: integers(n) },
    };
    this.visits = kernels.array("int32", [NUM_REGIONS]);
    this.lastAction = integers(params.width);
    this.lasted = integers(params.width);
    this.draws = kernels.array("float64", [n]);
    this.target = kernels.array("float64", [5]);
    this.visited = new Set(); // cells of all states that were in the frontier
    kernels.bytes(this.parents.rows).set(start);
    this.simulated = this.leg = 0;
    this.won = null;
    this.frontier = { nodes: [0], actions: [-1], durations: [params.min_hold] };
    this.tree = { parents: [-1], actions: [-1] };
  }

  /** Simulate all actions from each state of the frontier; return the surviving children, one per cell, best first. */
  expand() {
    const { frontier, frameSkip, planner, params, out } = this;
    const { kernels, world } = planner;
    const { nodes, actions, durations } = frontier;
    const first = (array, count) => ({ ...array, shape: [count] });
    const n = nodes.length * NUM_ACTIONS;
    putIntegers(kernels, this.lastAction, actions);
    putIntegers(kernels, this.lasted, durations);
    this.random.fill(kernels.values(first(this.draws, n)));
    this.simulated += kernels.call("expand", {
      states: this.parents.state,
      children: this.children.state,
      words_from: words(this.parents.rows),
      words_to: words(this.children.rows),
      last_action: first(this.lastAction, nodes.length),
      lasted: first(this.lasted, nodes.length),
      frame_skip: frameSkip,
      world,
      sequence: this.sequence,
      mode: PATH,
      target: this.target,
      params,
      random: first(this.draws, n),
      visits: this.visits,
      out,
    });
    this.scores = kernels.values(out.scores);
    this.cells = kernels.values(out.cells);
    this.regions = lowWords(kernels, out.regions);
    this.legs = lowWords(kernels, out.legs);
    const frames = lowWords(kernels, out.frames);
    const { scores, cells } = this;
    let best = -1;
    const alive = [];
    for (let c = 0; c < n; c++) {
      if (scores[c] < 0 && (best < 0 || frames[2 * c] < frames[2 * best])) best = c;
      if (scores[c] < LOST) alive.push(c);
    }
    if (best >= 0) {
      const path = actionsTo(
        this.tree.parents,
        this.tree.actions,
        nodes[Math.floor(best / NUM_ACTIONS)],
        best % NUM_ACTIONS,
      );
      this.won = winningRun(path, frames[2 * best], frameSkip);
      return [];
    }
    const found = new Set();
    alive.sort((a, b) => scores[a] - scores[b]);
    return alive.filter((c) => !found.has(cells[c]) && found.add(cells[c]));
  }

  /** Add children to the tree, and make them the states to expand next. */
  advance(children) {
    const { kernels } = this.planner;
    const { nodes, actions, durations } = this.frontier;
    /** @type {Record<"nodes" | "actions" | "durations", number[]>} */
    const next = { nodes: [], actions: [], durations: [] };
    const visits = kernels.values(this.visits);
    const bytes = new Uint8Array(kernels.exports.memory.buffer);
    const [from, to, length] = [this.children.rows.address, this.parents.rows.address, this.parents.rows.shape[1]];
    children.forEach((child, i) => {
      const [parent, action] = [Math.floor(child / NUM_ACTIONS), child % NUM_ACTIONS];
      next.nodes.push(this.tree.parents.push(nodes[parent]) - 1);
      this.tree.actions.push(action);
      next.actions.push(action);
      next.durations.push(action === actions[parent] ? durations[parent] + 1 : 1);
      bytes.copyWithin(to + i * length, from + child * length, from + (child + 1) * length);
      visits[this.regions[2 * child]] += 1;
      this.visited.add(this.cells[child]);
      this.leg = Math.max(this.leg, this.legs[2 * child]);
    });
    this.frontier = next;
  }
}

/** Rows of bytes as rows of words of 64 bits. */
function words({ shape: [count, length], address }) {
  return { dtype: "uint64", shape: [count, length / 8], strides: [length, 8], itemSize: 8, address };
}

/** The low halves of an array of int64, at even indices. */
function lowWords(kernels, array) {
  return new Int32Array(kernels.exports.memory.buffer, array.address, 2 * array.shape[0]);
}

/**
 * Advance all states by one decision per step until the first win; return null without a win within the limits.
 * patience: decisions without a new lowest score after which the search ends.
 */
export function beamSearch(search, maxDecisions, budget, patience = Infinity) {
  let [lowest, since] = [Infinity, 0];
  for (let decision = 0; decision < maxDecisions; decision++) {
    if (search.simulated >= budget || decision - since > patience) break;
    let order = search.expand();
    if (search.won) return search.won;
    if (order.length && search.scores[order[0]] < lowest) [lowest, since] = [search.scores[order[0]], decision];
    const unvisited = order.filter((c) => !search.visited.has(search.cells[c]));
    order = (unvisited.length ? unvisited : order).slice(0, search.params.width);
    if (!order.length) break;
    search.advance(order);
    search.progress(search.simulated);
  }
  return null;
}

/** Best-first search with a budget of simulated frames. */
class BestFirst {
  constructor(planner, frameSkip, start, random, params, budget) {
    this.planner = planner;
    this.frameSkip = frameSkip;
    this.random = random;
    this.params = params;
    this.budget = budget;
    const { kernels } = planner;
    const capacity = Math.min(OPEN_STATES, Math.floor(OPEN_BYTES / start.length));
    this.open = planner.makeStates(capacity);
    this.child = planner.makeStates(2);
    kernels.bytes(this.open.rows).set(start);
    const integers = (value) => {
      const array = kernels.array("int64", [capacity]);
      putIntegers(
        kernels,
        array,
        Array.from({ length: capacity }, (_, i) => value(i)),
      );
      return array;
    };
    this.queue = {
      scores: kernels.array("float64", [capacity]),
      slots: integers((i) => i),
      nodes: integers(() => 0),
      actions: integers(() => -1),
      lasted: integers(() => params.min_hold),
      count: kernels.array("int64", [1]),
    };
    kernels.values(this.queue.scores).fill(Infinity);
    kernels.values(this.queue.count)[0] = 1n;
    // Each node costs a full decision, so the budget limits their number: the arrays need not grow, as they do in
    // Python.
    const nodes = Math.ceil(budget / frameSkip) + 2 * NUM_ACTIONS * MOST_EXPANSIONS;
    this.tree = {
      parents: kernels.array("int32", [nodes]),
      actions: kernels.array("int8", [nodes]),
      count: kernels.array("int64", [1]),
    };
    kernels.values(this.tree.count)[0] = 1n;
    this.visited = kernels.array("int64", [2 ** Math.ceil(Math.log2(2 * nodes))]);
    this.visits = kernels.array("int32", [NUM_REGIONS]);
    this.draws = kernels.array("float64", [MOST_EXPANSIONS, NUM_ACTIONS]);
    this.simulated = 0;
  }

  /** Search until the first win; return null without a win within the budget. */
  run(progress) {
    const { budget, frameSkip, planner } = this;
    const { kernels, world } = planner;
    while (this.simulated < budget && kernels.values(this.queue.count)[0] > 0n) {
      const expansions = Math.floor((budget - this.simulated) / (NUM_ACTIONS * frameSkip)) + 1;
      const draws = { ...this.draws, shape: [Math.min(MOST_EXPANSIONS, expansions), NUM_ACTIONS] };
      this.random.fill(kernels.values(draws));
      const [simulated, action, node, frames] = kernels.call("best_first", {
        open_states: this.open.state,
        child: this.child.state,
        open_words: words(this.open.rows),
        child_words: words(this.child.rows),
        queue: this.queue,
        tree: this.tree,
        visited: this.visited,
        visits: this.visits,
        world,
        sequence: planner.sequence,
        frame_skip: frameSkip,
        max_frame: planner.timeLimit,
        params: this.params,
        random: draws,
      });
      this.simulated += simulated;
      progress(this.simulated);
      if (action >= 0) {
        const [parents, actions] = [kernels.values(this.tree.parents), kernels.values(this.tree.actions)];
        return winningRun(actionsTo(parents, actions, node, action), frames, frameSkip);
      }
    }
    return null;
  }
}
