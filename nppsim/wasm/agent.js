/* An agent that plays one level, decision by decision, with the kernels of agent.wasm: the same decisions as in Python
 * (rl/studio/agent.py, rl/policy/player.py, rl/policy/backtracking.py).
 *
 *     const modules = { game: await loadModule("game"), agent: await loadModule("agent") };
 *     const environment = new Environment(modules, policy, compileLevel(new Kernels(modules.game), level));
 *     for (const decision of play(environment, { seed: 1 })) ...
 */

import { Kernels } from "./kernels.js";
import { computePaths } from "./level.js";
import { PathLengths } from "./path_lengths.js";
import { TorchRandom } from "./random.js";
import { WORD, allocate, gameParts, gameStates } from "./states.js";

const GAME_TIME = 5400; // frames, least time limit (nppsim.bank)
const RESTING = -1; // value of an action: only observe (nppsim.decision)
const UNCHANGED = -1; // value of a next level: no restart
const OUTCOMES = ["timeout", "won", "died"]; // nppsim.physics.outcomes
// Sizes in nppsim.observe and nppsim.decision.
const [SOLID_SHAPE, VIEW_SHAPE, NUM_HAZARDS, BRANCH_ROWS, NUM_BLOCKS] = [[90, 128], [176, 100], 8, 33, 1207];

/**
 * A decision of an agent.
 * @typedef {object} Decision
 * @property {number} f - frame
 * @property {number} a - action
 * @property {number[]} p - probabilities of the actions
 * @property {number} v - value of the state
 * @property {number} h - entropy of p, nats
 * @property {Object<string, number>} r - terms of the reward other than 0, by name
 * @property {Object<string, Float32Array | Uint8Array>} s - observation before the decision, by key
 * @property {Uint8Array} inputs - input bytes of the frames until the next decision
 * @property {Uint16Array} paths - lengths of the paths to the objective (nppsim.paths); the same array if unchanged
 * @property {string | null} outcome - "won", "died" or "timeout" at the end of the episode
 * @property {boolean} deadly - whether look-ahead found every action deadly
 * @property {number} backtracks - how often decisions have been taken back so far
 */

/** An environment of one level, with the observations of a policy; see nppsim.batch.BatchSimulator. */
export class Environment {
  /**
   * @param {{game: import("./kernels.js").KernelModule, agent: import("./kernels.js").KernelModule}} modules
   * @param {import("./policy.js").Policy} policy
   * @param {import("./level.js").CompiledLevel} compiled
   */
  constructor(modules, policy, compiled) {
    const [kernels, game] = [new Kernels(modules.agent), new Kernels(modules.game)];
    this.policy = policy;
    this.settings = policy.settings;
    this.kernels = kernels;
    this.game = game;
    const array = (dtype, ...shape) => kernels.array(dtype, shape);
    this.world = kernels.copyIn(compiled.world);
    this.record = { ...kernels.record(this.world.level, 0) };
    this.gameParts = gameParts(kernels, this.world);
    const terms = { progress: ["progress"], terms: ["float64", policy.settings.terms.length] };
    const rows = allocate(kernels, 1, { ...this.gameParts, ...terms, visited: ["uint8", NUM_BLOCKS] });
    this.row = rows.rows;
    this.state = rows.views;
    const { length, time_limit, ...fields } = computePaths(game, compiled, GAME_TIME);
    const { distance, next_step } = fields;
    const { switches_first, switches_end, exits_first, exits_end } = this.record;
    this.fields = {
      ...kernels.copyIn(fields),
      own_level: array("int64", 1),
      own_doors: array("uint8", 1, switches_end - switches_first + exits_end - exits_first),
      own_distance: array("uint16", ...distance.shape),
      own_next_step: array("uint8", ...next_step.shape),
      own_switch_to_exit: array("int64", 1),
    };
    kernels.values(this.fields.own_level)[0] = -1n;
    // The kernels of game.wasm compute the state after given inputs, and path lengths.
    this.lengths = new PathLengths(game, compiled, fields);
    this.gameState = gameStates(game, this.lengths.given.world, 1).state;
    this.static = {
      ...kernels.copyIn({ ...this.solidMap(compiled), time_limit, path_length: length }),
      background: array("uint8", 0, ...VIEW_SHAPE),
      level_ids: array("int64", 0),
      reward: array("weights", 1),
    };
    Object.assign(kernels.record(this.static.reward, 0), policy.settings.reward);
    const types = Object.fromEntries(kernels.entries.advance.arguments);
    this.out = mapped(types.out.tuple, ({ dtype, dimensions }, name) => {
      return array(dtype, ...(name === "laps" ? [1, 0] : [1, policy.settings.terms.length].slice(0, dimensions)));
    });
    this.views = {
      ...mapped(types.views.tuple, (type, name) => this.view(type, name)),
      gaps: array("float64", 2, NUM_HAZARDS),
      branches: this.branches(),
    };
    this.actions = array("int64", 1);
    this.nextLevel = array("int32", 1);
    this.outcome = null;
    this.observed = {};
  }

  solidMap({ stage }) {
    const { game } = this;
    const stages = game.copyIn({ ...stage, shape: [1, ...stage.shape] });
    const given = { stage: stages, solid: game.array("uint8", [1, ...SOLID_SHAPE]) };
    game.call("prepare_static", { ...given, background: game.array("uint8", [0, ...VIEW_SHAPE]) });
    return game.copyOut(given);
  }

  /** The array of an observation, with a second row that is not used; no rows if the policy does not observe it. */
  view({ dtype, dimensions }, name) {
    const observed = this.settings.observations[name];
    if (!dtype) return null;
    return this.kernels.array(dtype, observed ? [2, ...observed.shape] : [0, ...Array(dimensions - 1).fill(1)]);
  }

  /** Work space of the look-ahead: allocate_branches of nppsim.observe.foresight. */
  branches() {
    const { kernels, gameParts: parts } = this;
    const { rows, views } = allocate(kernels, BRANCH_ROWS, { ...parts, trail: ["trail", 0] });
    const [, movers] = parts.movers;
    const words = { ...rows, dtype: "uint64", itemSize: WORD, shape: [BRANCH_ROWS, rows.shape[1] / WORD] };
    const [frames, jump_delay, count] = [0, 1, 2].map(() => kernels.array("int64", [BRANCH_ROWS]));
    const [chosen, clearances] = [kernels.array("uint8", [2, movers]), kernels.array("float64", [1, movers])];
    kernels.bytes(chosen).fill(1);
    const settings = kernels.array("foresight", [1]);
    Object.assign(kernels.record(settings, 0), this.settings.foresight);
    words.strides = [rows.shape[1], WORD];
    return { words, ...views, frames, jump_delay, count, chosen, clearances, settings };
  }

  /** Start an episode with inputs that are played before the first decision. */
  start(inputs) {
    this.advance(RESTING, 0);
    if (!inputs.length) return;
    const { game, gameState: state } = this;
    const { world } = this.lengths.given;
    const copy = (from, source, to, target) => {
      for (const name of Object.keys(this.gameParts)) to.bytes(target[name]).set(from.bytes(source[name]));
    };
    copy(this.kernels, this.state, game, state);
    const mark = game.mark();
    const given = game.copyIn({ dtype: "uint8", shape: [inputs.length], bytes: inputs });
    game.call("play_on", { state, world, inputs: given });
    game.release(mark);
    copy(game, state, this.kernels, this.state);
    this.advance(RESTING, UNCHANGED);
  }

  /** Make a decision; update ``observed`` and ``outcome``. */
  advance(action, nextLevel = UNCHANGED) {
    const { kernels, settings, state, world, fields, out, views } = this;
    kernels.values(this.actions)[0] = BigInt(action);
    kernels.values(this.nextLevel)[0] = nextLevel;
    const range = { begin: 0, end: 1, turn: 0, every_end: 0 };
    const { actions, nextLevel: next_level } = this;
    const given = { frame_skip: settings.frame_skip, gamma: settings.gamma, actions, next_level };
    kernels.call("advance", { ...range, ...given, state, world, fields, static: this.static, out, views });
    const ended = action >= 0 && (kernels.values(out.terminated)[0] || kernels.values(out.truncated)[0]);
    this.outcome = ended ? OUTCOMES[kernels.values(out.outcome)[0]] : null;
    this.observe();
  }

  observe() {
    this.observed = {};
    for (const [key, { shape }] of Object.entries(this.settings.observations))
      this.observed[key] = this.kernels.values({ ...this.views[key], shape }).slice();
  }

  /** A field of the ninja's record; ``Kernels.record`` takes longer. */
  ninja(name, dtype) {
    const address = this.state.ninja.address + this.kernels.records.ninja.fields[name][1];
    return this.kernels.values({ dtype, address, shape: [1] })[0];
  }

  get frame() {
    return this.ninja("frame", "int32");
  }

  /** Sums of the terms of the reward in this episode. */
  get terms() {
    return Array.from(this.kernels.values(this.state.terms));
  }

  snapshot() {
    return this.kernels.bytes(this.row).slice();
  }

  /** Return to a snapshot; the episode continues. */
  restore(snapshot) {
    this.kernels.bytes(this.row).set(snapshot);
    this.advance(RESTING);
  }

  /** Path lengths from all points to the objective; the same array as long as they do not change. */
  pathLengths() {
    return this.lengths.of(this.kernels, this.state);
  }
}

/** Chooses the actions of one episode, with exploration and backtracking. */
class Player {
  constructor(environment, seed, deterministic) {
    this.environment = environment;
    this.settings = environment.settings;
    this.deterministic = deterministic;
    this.rng = new TorchRandom(seed);
    this.exploring = { shortest: Infinity, waiting: 0, action: 0, repeats: 0 };
    this.past = []; // states before the latest decisions; decision i has the index i % (horizon + 1)
    this.decisions = this.farthest = this.failed = this.sampled = 0;
    this.tries = { phase: 0, death: 0 };
    if (this.settings.exploration) {
      const { components } = this.settings.observations.reachability_features;
      this.path = components.indexOf("path_to_exit");
    }
  }

  /** Return an action for outputs of the network. */
  act(logits) {
    const { backtracking: settings } = this.settings;
    if (!settings) return this.explore(logits, this.deterministic);
    const { environment, exploring } = this;
    this.past[this.decisions % (settings.horizon + 1)] = [environment.snapshot(), { ...exploring }];
    const action = this.explore(logits, this.deterministic && !this.sampled);
    if (this.sampled) this.sampled -= 1;
    this.decisions += 1;
    this.farthest = Math.max(this.farthest, this.decisions);
    if (this.decisions > this.failed + settings.passed_decisions) this.tries = { phase: 0, death: 0 };
    return action;
  }

  explore(logits, deterministic) {
    const { settings, rng, environment, exploring: own } = this;
    const choose = (greedy) => (greedy ? largest(logits) : sample(logits, rng));
    if (!settings.exploration) return choose(deterministic);
    const { patience, burst, max_repeat: most } = settings.exploration;
    const path = environment.observed.reachability_features[this.path];
    own.waiting = path < own.shortest ? 0 : own.waiting + 1;
    own.shortest = Math.min(path, own.shortest);
    const over = own.waiting - patience;
    const explores = over >= 0 && Math.floor(over / burst) % 2 === 0;
    const action = choose(deterministic && !explores);
    if (!explores) {
      own.repeats = 0;
      return action;
    }
    const deadly = environment.policy.deathPenalty(environment.observed)[own.action] > 0;
    const repeats = 1 + rng.integers(most);
    if (own.repeats === 0 || deadly) Object.assign(own, { action, repeats });
    own.repeats -= 1;
    return own.action;
  }

  /** Decisions of a phase of exploration and of the policy. */
  get phase() {
    return 2 * this.settings.exploration.burst;
  }

  /** True if a phase of exploration has ended without a shorter path. */
  get explorationFailed() {
    const { environment, exploring, settings } = this;
    if (environment.outcome || !settings.exploration) return false;
    const over = exploring.waiting - settings.exploration.patience;
    const longer = environment.observed.reachability_features[this.path] >= exploring.shortest;
    return over >= 0 && over % this.phase === this.phase - 1 && longer;
  }

  /** Return to an earlier state where the episode fails; return the number of undone decisions. */
  backtrack() {
    const { environment, rng, tries } = this;
    const settings = this.settings.backtracking;
    const died = environment.outcome === "died";
    if (!settings || !(died || this.explorationFailed)) return 0;
    const [cause, most] = died ? ["death", settings.max_death_retries] : ["phase", settings.max_phase_retries];
    if (tries[cause] >= most) return 0;
    const deepest = Math.min(settings.min_depth + settings.depth_step * (tries[cause] + 1), settings.horizon);
    const drawn = Math.floor(settings.min_depth + rng.random() * (deepest + 1 - settings.min_depth));
    const start = Math.max(this.decisions - (died ? drawn : this.phase), this.farthest - settings.horizon, 0);
    const count = this.decisions - start;
    if (count <= 0) return 0;
    this.failed = Math.max(this.failed, this.decisions);
    tries[cause] += 1;
    this.decisions = start;
    this.sampled = died ? count : 0;
    const [snapshot, exploring] = this.past[start % (settings.horizon + 1)];
    this.exploring = { ...exploring };
    environment.restore(snapshot);
    return count;
  }
}

/**
 * Play one episode; decisions are yielded when they cannot be undone any more.
 * @param {Environment} environment
 * @param {object} settings
 * @param {number} [settings.seed]
 * @param {boolean} [settings.deterministic] - take greedy instead of sampled actions
 * @param {ArrayLike<number>} [settings.inputs] - to play before the first decision
 * @returns {Generator<Decision>}
 */
export function* play(environment, { seed = 0, deterministic = false, inputs = [] } = {}) {
  const { policy, settings } = environment;
  environment.start(inputs);
  const player = new Player(environment, seed, deterministic);
  const horizon = settings.backtracking?.horizon ?? 0;
  /** @type {Decision[]} */
  const pending = [];
  let [frame, terms, backtracks] = [environment.frame, settings.terms.map(() => 0), 0];
  for (let over = false; !over; ) {
    const [{ observed }, paths] = [environment, environment.pathLengths()];
    const { logits, value } = policy.outputs(observed);
    const action = player.act(logits);
    environment.advance(action);
    const undone = player.backtrack();
    if (undone) backtracks += 1;
    over = environment.outcome !== null;
    const [nextFrame, nextTerms] = [environment.frame, environment.terms];
    const gained = settings.terms.map((name, i) => [name, nextTerms[i] - terms[i]]).filter(([, reward]) => reward);
    const probabilities = softmax(logits);
    pending.push({
      ...{ f: frame, a: action, p: probabilities, v: value, h: entropy(probabilities), s: observed, paths },
      r: Object.fromEntries(gained),
      inputs: new Uint8Array(Math.max(nextFrame - frame, 0)).fill(settings.action_inputs[action]),
      outcome: environment.outcome,
      deadly: policy.deathPenalty(observed).every((penalty) => penalty > 0),
      backtracks,
    });
    pending.length -= undone;
    [frame, terms] = [nextFrame, nextTerms];
    yield* pending.splice(0, over ? pending.length : Math.max(pending.length - horizon, 0));
  }
}

/** Softmax in float64. */
function softmax(logits) {
  const most = Math.max(...logits);
  const powers = Array.from(logits, (logit) => Math.exp(logit - most));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((power) => power / sum);
}

function entropy(probabilities) {
  return -probabilities.reduce((sum, p) => sum + (p > 0 ? p * Math.log(p) : 0), 0);
}

/** Sample an action from the softmax of logits, as sample_actions of rl.policy.policy. */
function sample(logits, rng) {
  return largest(logits.map((logit) => logit - Math.fround(Math.log(rng.exponential()))));
}

function largest(values) {
  return values.indexOf(Math.max(...values));
}

function mapped(entries, change) {
  return Object.fromEntries(entries.map(([name, value]) => [name, change(value, name)]));
}
