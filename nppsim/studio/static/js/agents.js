/* Episodes of agents: in a worker; on the server for live play and for agents that the page cannot run.
 *
 *     for await (const { decisions, ending } of play(agent, { levels: [levelOf(level)], seed: 1 }, signal)) ...
 */

import { getBytes, postForLines } from "./api.js";
import { bytes, text } from "./arrays.js";
import { messagesOf } from "./work.js";
import { levelToBytes } from "../../../wasm/level.js";

const DEFAULTS = {
  episodes: 1,
  seed: 0,
  deterministic: false,
  inputs: new Uint8Array(),
  endingsOnly: false,
  live: "", // clock of live play
};

/**
 * Let an agent play; the messages are those of nppsim/wasm/agent_worker.js.  Ends with an AbortError after an abort.
 * @param {{id: string, in_page: boolean}} agent - card of the agent
 * @param {Record<string, any>} request - levels, and deviations from DEFAULTS
 * @param {AbortSignal} signal
 * @returns {AsyncGenerator<Record<string, any>>}
 */
export async function* play(agent, request, signal) {
  /** @type {Record<string, any>} */
  const whole = { ...DEFAULTS, ...request };
  const path = `agents/${encodeURIComponent(agent.id)}`;
  if (agent.in_page && !whole.live) {
    yield* messagesOf("agent", { ...whole, policy: await getBytes(`${path}/policy`) }, signal);
  } else yield* onServer(path, whole, signal);
}

async function* onServer(path, whole, signal) {
  const { levels, inputs, endingsOnly, ...request } = whole;
  const maps = levels.map((level) => text(levelToBytes(level)));
  const body = { ...request, maps, inputs: text(inputs), endings_only: endingsOnly };
  let layout = {};
  for await (const message of postForLines(`${path}/play`, body, signal)) {
    if (message.error) throw new Error(message.error);
    layout = message.layout ?? layout;
    for (const decision of message.decisions ?? []) {
      decision.inputs = bytes(decision.inputs);
      decision.paths &&= new Uint16Array(bytes(decision.paths).buffer);
      for (const [key, { picture }] of Object.entries(layout))
        decision.s[key] = picture ? bytes(decision.s[key]) : Float32Array.from(decision.s[key]);
    }
    yield message;
  }
}

/** Let an agent continue after some inputs; resolves to the inputs that it adds. */
export async function continued(agent, level, inputs, signal) {
  const added = [];
  for await (const { decisions = [] } of play(agent, { levels: [level], inputs, deterministic: true }, signal))
    for (const decision of decisions) added.push(...decision.inputs);
  return Uint8Array.from(added);
}
