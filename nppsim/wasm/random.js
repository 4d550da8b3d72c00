/* Random numbers equal to numpy's and torch's, bit for bit: ``new Random(seed)`` is ``numpy.random.default_rng(seed)``,
 * and ``new TorchRandom(seed)`` is ``torch.Generator().manual_seed(seed)``.
 *
 *     const rng = new Random(3);
 *     rng.random();                // numpy: rng.random()
 *     rng.fill(new Float64Array(6));
 *     rng.integers(10);            // numpy: rng.integers(10)
 *
 * Source: numpy's SeedSequence, PCG64 (O'Neill 2014, XSL-RR 128/64) and Generator; MT19937 (Matsumoto, Nishimura 1998).
 */

const TWISTER_WORDS = 624; // of 32 bits in the state of MT19937
const POOL = 4; // words of 32 bits in the state of a SeedSequence
const LIMBS = 8; // of 16 bits in a number of 128 bits, the lowest first
const MULTIPLIER = [0xf645, 0x9fcc, 0xdf64, 0x4385, 0x5da4, 0x1fc6, 0xed05, 0x2360];

export class Random {
  /** seed: integer from 0 to 2**53 - 1. */
  constructor(seed) {
    const [s0, s1, s2, s3, i0, i1, i2, i3] = seedWords(seed, 2 * POOL);
    // Of each number of 128 bits, the higher 64 come first.
    const increment = limbs(i2, i3, i0, i1);
    this.increment = increment.map((limb, k) => ((limb << 1) | (k ? increment[k - 1] >>> 15 : 1)) & 0xffff);
    this.state = new Uint16Array(this.increment); // the first step of a generator whose state is 0
    this.old = new Uint16Array(LIMBS); // work space of ``step``
    let carry = 0;
    limbs(s2, s3, s0, s1).forEach((limb, k) => {
      carry += this.state[k] + limb;
      this.state[k] = carry;
      carry >>>= 16;
    });
    this.step();
    this.spare = null; // the higher half of the last number of 64 bits, if ``word`` has returned only the lower one
  }

  /** Advance the state: state * MULTIPLIER + increment. */
  step() {
    const { old, state, increment } = this;
    old.set(state);
    let carry = 0; // at most 2**36
    for (let k = 0; k < LIMBS; k++) {
      carry += increment[k];
      for (let i = 0; i <= k; i++) carry += old[i] * MULTIPLIER[k - i];
      state[k] = carry;
      carry = Math.floor(carry / 65536);
    }
  }

  low = 0;
  high = 0;

  /** Draw 64 bits into ``low`` and ``high``. */
  draw() {
    this.step();
    const s = this.state;
    let low = (s[0] ^ s[4]) | ((s[1] ^ s[5]) << 16);
    let high = (s[2] ^ s[6]) | ((s[3] ^ s[7]) << 16);
    const turn = s[7] >>> 10;
    if (turn & 32) [low, high] = [high, low];
    const by = turn & 31;
    this.low = by ? (low >>> by) | (high << (32 - by)) : low;
    this.high = by ? (high >>> by) | (low << (32 - by)) : high;
  }

  /** Draw 32 bits. */
  word() {
    if (this.spare !== null) {
      const word = this.spare;
      this.spare = null;
      return word;
    }
    this.draw();
    this.spare = this.high >>> 0;
    return this.low >>> 0;
  }

  /** Number from 0 to 1, without 1. */
  random() {
    this.draw();
    return ((this.high >>> 0) * 2 ** 21 + (this.low >>> 11)) / 2 ** 53;
  }

  /** Fill an array with ``random()``; return it. */
  fill(values) {
    for (let i = 0; i < values.length; i++) values[i] = this.random();
    return values;
  }

  /** Integer from 0 to end - 1, where 1 <= end < 2**32 (Lemire 2019). */
  integers(end) {
    if (end === 1) return 0;
    const least = 2 ** 32 % end;
    for (;;) {
      const product = BigInt(this.word()) * BigInt(end);
      if (Number(product & 0xffffffffn) >= least) return Number(product >> 32n);
    }
  }

  /** One of the items: numpy's ``choice(items)``. */
  choice(items) {
    return items[this.integers(items.length)];
  }

  /** Distinct integers from 0 to end - 1, where end is at most 10,000: numpy's ``choice(end, count, replace=False)``
   *  (Floyd's algorithm). */
  distinct(end, count) {
    const drawn = [];
    for (let j = end - count; j < end; j++) {
      const value = this.integers(j + 1);
      drawn.push(drawn.includes(value) ? j : value);
    }
    for (let i = count - 1; i > 0; i--) {
      const j = this.integers(i + 1);
      [drawn[i], drawn[j]] = [drawn[j], drawn[i]];
    }
    return drawn;
  }

  /** Number of trials until the first success of probability p, where p is at least 1/3. */
  geometric(p) {
    const drawn = this.random();
    let [trials, sum, product] = [1, p, p];
    while (drawn > sum) {
      product *= 1 - p;
      sum += product;
      trials += 1;
    }
    return trials;
  }
}

/** The generator of torch on the CPU, of which the seed has 32 bits. */
export class TorchRandom {
  constructor(seed) {
    this.state = new Uint32Array(TWISTER_WORDS);
    this.state[0] = seed % 2 ** 32;
    for (let i = 1; i < TWISTER_WORDS; i++) {
      const before = this.state[i - 1];
      this.state[i] = Math.imul(1812433253, before ^ (before >>> 30)) + i;
    }
    this.next = TWISTER_WORDS;
  }

  /** Draw 32 bits. */
  word() {
    if (this.next === TWISTER_WORDS) this.twist();
    let y = this.state[this.next++];
    y ^= y >>> 11;
    y ^= (y << 7) & 0x9d2c5680;
    y ^= (y << 15) & 0xefc60000;
    return (y ^ (y >>> 18)) >>> 0;
  }

  twist() {
    const s = this.state;
    for (let i = 0; i < TWISTER_WORDS; i++) {
      const y = (s[i] & 0x80000000) | (s[(i + 1) % TWISTER_WORDS] & 0x7fffffff);
      s[i] = s[(i + 397) % TWISTER_WORDS] ^ (y >>> 1) ^ (y & 1 ? 0x9908b0df : 0);
    }
    this.next = 0;
  }

  /** Number from 0 to 1, without 1: torch.rand() in float32. */
  random() {
    return (this.word() & 0xffffff) / 2 ** 24;
  }

  /** Integer from 0 to end - 1, where end is less than 2**28: torch.randint(end). */
  integers(end) {
    return this.word() % end;
  }

  /** Number of the exponential distribution, rounded to float32: Tensor.exponential_(). */
  exponential() {
    const high = this.word() & 0x1fffff;
    return Math.fround(-Math.log1p(-(high * 2 ** 32 + this.word()) / 2 ** 53));
  }
}

/** The limbs of a number of 128 bits. */
function limbs(...words) {
  return words.flatMap((word) => [word & 0xffff, word >>> 16]);
}

/** numpy's ``SeedSequence(seed).generate_state(count, "uint32")``. */
function seedWords(seed, count) {
  const entropy = [seed >>> 0, Math.floor(seed / 2 ** 32)];
  const hasher = (factor, by) => (value) => {
    const mixed = value ^ factor;
    factor = Math.imul(factor, by);
    const hashed = Math.imul(mixed, factor);
    return (hashed ^ (hashed >>> 16)) >>> 0;
  };
  const hash = hasher(0x43b0d7e5, 0x931e8875);
  const pool = Array.from({ length: POOL }, (_, i) => hash(entropy[i] ?? 0));
  for (let from = 0; from < POOL; from++)
    for (let to = 0; to < POOL; to++) {
      if (from === to) continue;
      const mixed = (Math.imul(0xca01f9dd, pool[to]) - Math.imul(0x4973f715, hash(pool[from]))) | 0;
      pool[to] = (mixed ^ (mixed >>> 16)) >>> 0;
    }
  const output = hasher(0x8b51f9dd, 0x58f38ded);
  return Array.from({ length: count }, (_, i) => output(pool[i % POOL]));
}
