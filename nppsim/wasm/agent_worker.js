/* Worker in which an agent plays episodes.  It receives
 * {modules, policy, levels, episodes, seed, deterministic, inputs, endingsOnly}:
 *
 *     modules: {game, agent} of kernels.js.  policy: content of a policy file.  levels: as in level.js.
 *     episodes: number per level; the seed grows by 1 each.  inputs: to play before the first decision.
 *     endingsOnly: post no decisions.
 *
 * and posts the messages of nppsim/studio/episodes.py: {layout, frameSkip}, {decisions},
 * {ending: [level, outcome, frames, x, y, share], why}, and at the end {done} or {error}.
 */

import { Environment, play } from "./agent.js";
import { endingOf } from "./ending.js";
import { Kernels } from "./kernels.js";
import { compileLevel } from "./level.js";
import { Policy } from "./policy.js";

const REPORT_MS = 40;

self.onmessage = ({ data: request }) => {
  try {
    playAll(request);
    self.postMessage({ done: true });
  } catch (error) {
    self.postMessage({ error: error.message });
  }
};

function playAll({ modules, policy: file, levels, episodes, seed, deterministic, inputs, endingsOnly }) {
  const policy = new Policy(file);
  const kernels = new Kernels(modules.game);
  self.postMessage({ layout: policy.settings.observations, frameSkip: policy.settings.frame_skip });
  levels.forEach((level, index) => {
    const compiled = compileLevel(kernels, level);
    const environment = new Environment(modules, policy, compiled);
    for (let episode = 0; episode < episodes; episode++) {
      /** @type {object[]} */
      let decisions = [];
      /** @type {string | null} */
      let outcome = null;
      let reported = performance.now();
      /** @type {Uint16Array | null} */
      let paths = null;
      /** @type {number | null} */
      let deadlyFrom = null;
      let backtracks = 0;
      const played = [...inputs];
      for (const decision of play(environment, { seed: seed + episode, deterministic, inputs })) {
        ({ outcome, backtracks } = decision);
        deadlyFrom = decision.deadly ? (deadlyFrom ?? decision.f) : null;
        played.push(...decision.inputs);
        if (endingsOnly) continue;
        decisions.push({ ...decision, paths: decision.paths === paths ? null : decision.paths });
        ({ paths } = decision);
        if (performance.now() - reported < REPORT_MS && !outcome) continue;
        self.postMessage({ decisions });
        [decisions, reported] = [[], performance.now()];
      }
      const { place, share, why } = endingOf(modules.game, compiled, played, { deadlyFrom, backtracks });
      self.postMessage({ ending: [index, outcome, environment.frame, ...place, share], why });
    }
  });
}
