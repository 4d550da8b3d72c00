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
const INPUTS_TOGETHER = 4; // of a layer, which takes half the time of one at a time

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
    const layers = (names, scale = 1) => names.map((layer) => new Dense(tensors, layer, Math.fround(scale)));
    this.parts = branches.map((branch) => ({ ...branch, layers: layers(branch.layers, branch.scale) }));
    const { fusion, actor, critic } = this.settings;
    this.heads = { fusion: layers(fusion), actor: layers(actor), critic: layers(critic) };
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
      relus(layers, typeof inputs === "string" ? observed[inputs] : vectors.subarray(...inputs)),
    );
    const features = relus(this.heads.fusion, concatenated(ends));
    const [logits, [value]] = [this.heads.actor, this.heads.critic].map((layers) =>
      layers[layers.length - 1].apply(relus(layers.slice(0, -1), features)),
    );
    return { logits, value };
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
  /** scale: factor of the weights. */
  constructor(tensors, name, scale) {
    const weight = tensors[`${name}.weight`];
    this.bias = tensors[`${name}.bias`];
    const [outputs, inputs] = [this.bias.length, weight.length / this.bias.length];
    // [inputs + 1, outputs], so that inputs of 0 can be skipped; the last row is 0
    this.weight = new Float32Array((inputs + 1) * outputs);
    for (let i = 0; i < inputs; i++)
      for (let j = 0; j < outputs; j++) this.weight[i * outputs + j] = weight[j * inputs + i] * scale;
    this.sums = new Float64Array(outputs);
    this.used = new Int32Array(inputs + INPUTS_TOGETHER); // work space: indices of the inputs other than 0
  }

  apply(values) {
    const { sums, weight, used } = this;
    const width = sums.length;
    let count = 0;
    for (let i = 0; i < values.length; i++) if (values[i] !== 0) used[count++] = i;
    used.fill(values.length, count, count + INPUTS_TOGETHER); // rows of zeros
    sums.set(this.bias);
    for (let k = 0; k < count; k += INPUTS_TOGETHER) {
      const [i0, i1, i2, i3] = [used[k], used[k + 1], used[k + 2], used[k + 3]];
      const [v0, v1, v2, v3] = [values[i0], values[i1] ?? 0, values[i2] ?? 0, values[i3] ?? 0];
      const [r0, r1, r2, r3] = [i0 * width, i1 * width, i2 * width, i3 * width];
      for (let j = 0; j < width; j++)
        sums[j] += v0 * weight[r0 + j] + v1 * weight[r1 + j] + v2 * weight[r2 + j] + v3 * weight[r3 + j];
    }
    return Float32Array.from(sums);
  }
}

/** Apply layers with a ReLU after each. */
function relus(layers, values) {
  for (const layer of layers) values = layer.apply(values).map((value) => Math.max(value, 0));
  return values;
}

function concatenated(arrays) {
  const whole = new Float32Array(arrays.reduce((sum, { length }) => sum + length, 0));
  arrays.reduce((at, array) => (whole.set(array, at), at + array.length), 0);
  return whole;
}
