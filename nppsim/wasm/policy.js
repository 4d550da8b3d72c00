/* The network of a policy, in the page, in workers and in Node.js.  rl/studio/policy_file.py describes the file, and
 * writes it from a checkpoint.
 *
 *     const policy = new Policy(await (await fetch("agent.policy")).arrayBuffer());
 *     const { logits, value } = policy.outputs(observations);
 *
 * Outputs equal those of torch up to the order of sums in float32; here, sums are computed in float64 and then rounded.
 */

import { sha256 } from "./sha256.js";

const FORMAT_VERSION = 2;
const INPUTS_TOGETHER = 8; // of a layer, which takes less than half the time of one at a time

/** A policy file that this version cannot read. */
export class PolicyError extends Error {}

export class Policy {
  /**
   * @param {ArrayBuffer} file
   * @param {string} name - for messages
   */
  constructor(file, name = "policy") {
    const size = file.byteLength < 4 ? Infinity : new DataView(file).getUint32(0, true);
    if (size > file.byteLength - 4)
      throw new PolicyError(`${name}: no policy file, or cut off; export the agent again`);
    /** @type {Object<string, any>} the text of the file */
    this.settings = JSON.parse(new TextDecoder().decode(new Uint8Array(file, 4, size)));
    const { format_version: version, branches, observations } = this.settings;
    if (version !== FORMAT_VERSION)
      throw new PolicyError(`${name}: format ${version} instead of ${FORMAT_VERSION}; export the agent again`);
    const tensors = {};
    let begin = 4 + size;
    if (sha256(new Uint8Array(file, begin)) !== this.settings.sha256)
      throw new PolicyError(`${name}: damaged; load the page again`);
    for (const [tensor, shape] of this.settings.tensors) {
      const count = shape.reduce((product, length) => product * length, 1);
      tensors[tensor] = new Float32Array(file, begin, count);
      begin += 4 * count;
    }
    const layers = (names, scale = 1, last = 0) =>
      names.map((layer, i) => new Dense(tensors, layer, Math.fround(scale), i < names.length - 1 ? 0 : last));
    this.parts = branches.map((branch) => ({ ...branch, layers: layers(branch.layers, branch.scale) }));
    const { fusion, actor, critic } = this.settings;
    const ofHead = (names) => layers(names, 1, -Infinity);
    this.heads = { fusion: layers(fusion), actor: ofHead(actor), critic: ofHead(critic) };
    this.mean = tensors["features_extractor.normalize.mean"];
    this.divisor = tensors["features_extractor.normalize.divisor"];
    this.vectors = Object.keys(observations).filter((key) => !observations[key].picture);
  }

  /**
   * @param {Object<string, Float32Array | Uint8Array>} observed - raw observations by key
   * @returns {{logits: Float32Array, value: number}}
   */
  outputs(observed) {
    let result = this.network(observed);
    const { mirror } = this.settings;
    if (mirror) {
      const other = this.network(this.mirrored(observed));
      const half = (a, b) => Math.fround(a + b) / 2;
      result = {
        logits: result.logits.map((logit, i) => half(logit, other.logits[mirror.actions[i]])),
        value: half(result.value, other.value),
      };
    }
    const penalty = this.deathPenalty(observed);
    return { ...result, logits: result.logits.map((logit, i) => logit - penalty[i]) };
  }

  network(observed) {
    const vectors = new Float32Array(this.mean.length);
    const { clamp } = this.settings;
    let at = 0;
    for (const key of this.vectors) {
      vectors.set(observed[key], at);
      at += observed[key].length;
    }
    for (let i = 0; i < vectors.length; i++) {
      const value = Math.fround(vectors[i] - this.mean[i]) / this.divisor[i];
      vectors[i] = Math.min(Math.max(value, -clamp), clamp);
    }
    const ends = this.parts.map(({ inputs, layers }) =>
      applied(layers, typeof inputs === "string" ? observed[inputs] : vectors.subarray(...inputs)),
    );
    const features = applied(this.heads.fusion, concatenated(ends));
    const [logits, [value]] = [this.heads.actor, this.heads.critic].map((layers) => applied(layers, features));
    return { logits: logits.slice(), value };
  }

  /** Mirror images of observations. */
  mirrored(observed) {
    const { keys, width } = this.settings.mirror;
    const images = Object.entries(keys).map(([key, { from, signs, positions }]) => {
      const values = observed[key];
      const image = values.map((_, i) => signs[i] * values[from[i]]);
      for (const x of positions) if (image[x] || image[x + 1]) image[x] = width - image[x];
      return [key, image];
    });
    return Object.fromEntries(images);
  }

  /** Penalty of each action: above 0 if it leads to death in all branches of the look-ahead. */
  deathPenalty(observed) {
    const { observations, death_penalty: least, action_inputs: inputs } = this.settings;
    if (!least) return new Float32Array(inputs.length);
    const { shape, components } = observations.foresight;
    const [actions, branches, width] = shape;
    const death = components.indexOf("death");
    return Float32Array.from({ length: actions }, (_, action) => {
      let latest = Infinity; // 0 if a branch survives
      for (let branch = 0; branch < branches; branch++)
        latest = Math.min(latest, observed.foresight[(action * branches + branch) * width + death]);
      return least * Math.fround((latest > 0 ? 1 : 0) + latest);
    });
  }
}

/** A linear layer. */
class Dense {
  /** scale: factor of the weights.  least: minimum of the outputs, 0 for a ReLU. */
  constructor(tensors, name, scale, least) {
    this.least = least;
    const weight = tensors[`${name}.weight`];
    this.bias = tensors[`${name}.bias`];
    const [outputs, inputs] = [this.bias.length, weight.length / this.bias.length];
    // [inputs + 1, outputs], so that inputs of 0 can be skipped; the last row is 0
    this.weight = new Float32Array((inputs + 1) * outputs);
    for (let i = 0; i < inputs; i++)
      for (let j = 0; j < outputs; j++) this.weight[i * outputs + j] = weight[j * inputs + i] * scale;
    this.sums = new Float64Array(outputs);
    this.values = new Float32Array(outputs);
    // work space: the inputs other than 0, and where their rows begin
    this.used = new Float64Array(inputs + INPUTS_TOGETHER);
    this.rows = new Int32Array(inputs + INPUTS_TOGETHER);
  }

  /** Return the outputs, which the next call overwrites. */
  apply(inputs) {
    const { sums, weight, used, rows, values, least } = this;
    const width = sums.length;
    let count = 0;
    for (let i = 0; i < inputs.length; i++) {
      if (inputs[i] === 0) continue;
      used[count] = inputs[i];
      rows[count++] = i * width;
    }
    used.fill(0, count, count + INPUTS_TOGETHER);
    rows.fill(inputs.length * width, count, count + INPUTS_TOGETHER); // row of zeros
    sums.set(this.bias);
    for (let k = 0; k < count; k += INPUTS_TOGETHER) {
      const [v0, v1, v2, v3] = [used[k], used[k + 1], used[k + 2], used[k + 3]];
      const [v4, v5, v6, v7] = [used[k + 4], used[k + 5], used[k + 6], used[k + 7]];
      const [r0, r1, r2, r3] = [rows[k], rows[k + 1], rows[k + 2], rows[k + 3]];
      const [r4, r5, r6, r7] = [rows[k + 4], rows[k + 5], rows[k + 6], rows[k + 7]];
      for (let j = 0; j < width; j++) {
        const first = v0 * weight[r0 + j] + v1 * weight[r1 + j] + v2 * weight[r2 + j] + v3 * weight[r3 + j];
        const second = v4 * weight[r4 + j] + v5 * weight[r5 + j] + v6 * weight[r6 + j] + v7 * weight[r7 + j];
        sums[j] = sums[j] + first + second;
      }
    }
    for (let j = 0; j < width; j++) values[j] = Math.max(sums[j], least);
    return values;
  }
}

/** Apply layers one after another. */
function applied(layers, values) {
  for (const layer of layers) values = layer.apply(values);
  return values;
}

function concatenated(arrays) {
  const whole = new Float32Array(arrays.reduce((sum, { length }) => sum + length, 0));
  arrays.reduce((at, array) => (whole.set(array, at), at + array.length), 0);
  return whole;
}
