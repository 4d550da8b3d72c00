/* Outputs of a policy (node wasm_agent.mjs WASM FOLDER outputs) or decisions of episodes (... episodes), for
 * tests/rl/studio/test_policy_file.py; FOLDER has agent.policy, and the observations or jobs.json. */

import { readFileSync, writeFileSync } from "node:fs";

const [, , wasm, folder, what] = process.argv;
const { endingOf } = await import(`${wasm}/ending.js`);
const { Environment, play } = await import(`${wasm}/agent.js`);
const { Kernels, loadModule } = await import(`${wasm}/kernels.js`);
const { compileLevel, levelFromBytes } = await import(`${wasm}/level.js`);
const { Policy } = await import(`${wasm}/policy.js`);

const read = (name) => Uint8Array.from(readFileSync(`${folder}/${name}`)).buffer;
const policy = new Policy(read("agent.policy"));

function outputs() {
  const size = ({ shape }) => shape.reduce((product, length) => product * length, 1);
  const arrays = Object.entries(policy.settings.observations).map(([key, about]) => {
    const data = read(key);
    return [key, about.picture ? new Uint8Array(data) : new Float32Array(data), size(about)];
  });
  const rows = arrays[0][1].length / arrays[0][2];
  const out = new Float32Array(7 * rows);
  for (let i = 0; i < rows; i++) {
    const observed = arrays.map(([key, values, length]) => [key, values.subarray(i * length, (i + 1) * length)]);
    const { logits, value } = policy.outputs(Object.fromEntries(observed));
    out.set([...logits, value], 7 * i);
  }
  writeFileSync(`${folder}/outputs`, out);
}

async function episodes() {
  const modules = { game: await loadModule("game"), agent: await loadModule("agent") };
  const game = new Kernels(modules.game);
  const text = (array) => Buffer.from(array.buffer, array.byteOffset, array.byteLength).toString("base64");
  let made = 0;
  const advance = Environment.prototype.advance;
  Environment.prototype.advance = function (action, ...more) {
    made += action >= 0;
    return advance.call(this, action, ...more);
  };
  const started = performance.now();
  const results = JSON.parse(readFileSync(`${folder}/jobs.json`)).map(({ level, inputs, ...settings }) => {
    const compiled = compileLevel(game, levelFromBytes(Buffer.from(level, "base64")));
    made = 0;
    let [paths, deadlyFrom, backtracks] = [null, null, 0];
    const decisions = [];
    const played = [...Buffer.from(inputs, "base64")];
    const given = { ...settings, inputs: Buffer.from(inputs, "base64") };
    for (const decision of play(new Environment(modules, policy, compiled), given)) {
      const s = Object.fromEntries(Object.entries(decision.s).map(([key, values]) => [key, text(values)]));
      const changed = decision.paths === paths ? null : text(decision.paths);
      decisions.push({ ...decision, s, paths: changed, inputs: text(decision.inputs) });
      paths = decision.paths;
      deadlyFrom = decision.deadly ? (deadlyFrom ?? decision.f) : null;
      ({ backtracks } = decision);
      played.push(...decision.inputs);
    }
    return { decisions, made, ...endingOf(modules.game, compiled, played, { deadlyFrom, backtracks }) };
  });
  writeFileSync(`${folder}/results.json`, JSON.stringify({ results, seconds: (performance.now() - started) / 1000 }));
}

await { outputs, episodes }[what]();
