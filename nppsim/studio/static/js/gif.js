/* Animated GIF files (GIF89a): a palette of the most frequent colours, and LZW compression. */

const COLOURS = 256;
const MOST_CODES = 4096;
const [CLEAR, END] = [COLOURS, COLOURS + 1];

/**
 * Encode pictures.
 * @param {ImageData[]} pictures - of one size
 * @param {number} delay - time per picture, hundredths of a second
 * @param {() => Promise<void>} pause - awaited after each picture
 * @returns {Promise<Uint8Array>}
 */
export async function encodeGif(pictures, delay, pause = async () => {}) {
  const { width, height } = pictures[0];
  const palette = paletteOf(pictures);
  const indexOf = nearest(palette);
  const bytes = [...ascii("GIF89a"), ...word(width), ...word(height), 0xf7, 0, 0];
  for (let i = 0; i < COLOURS; i++) bytes.push(...(palette[i] ?? [0, 0, 0]));
  bytes.push(0x21, 0xff, 11, ...ascii("NETSCAPE2.0"), 3, 1, 0, 0, 0); // repeats for ever
  const parts = [Uint8Array.from(bytes)];
  for (const { data } of pictures) {
    const pixels = new Uint8Array(width * height);
    for (let i = 0; i < pixels.length; i++) pixels[i] = indexOf(data[4 * i], data[4 * i + 1], data[4 * i + 2]);
    const head = [0x21, 0xf9, 4, 0, ...word(delay), 0, 0, 0x2c, 0, 0, 0, 0, ...word(width), ...word(height), 0, 8];
    parts.push(Uint8Array.from(head), blocks(compress(pixels)));
    await pause();
  }
  parts.push(Uint8Array.of(0x3b));
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

const ascii = (text) => Array.from(text, (character) => character.charCodeAt(0));
const word = (value) => [value & 255, value >> 8];
const key = (r, g, b) => ((r >> 3) << 10) | ((g >> 3) << 5) | (b >> 3); // of 32,768 groups of colours

/** Return the mean colour of each of the most frequent groups. */
function paletteOf(pictures) {
  const sums = new Map(); // group -> [count, r, g, b]
  for (const { data } of pictures) {
    for (let i = 0; i < data.length; i += 4) {
      const group = key(data[i], data[i + 1], data[i + 2]);
      const sum = sums.get(group);
      if (sum) {
        sum[0] += 1;
        sum[1] += data[i];
        sum[2] += data[i + 1];
        sum[3] += data[i + 2];
      } else sums.set(group, [1, data[i], data[i + 1], data[i + 2]]);
    }
  }
  const frequent = [...sums.values()].sort((a, b) => b[0] - a[0]).slice(0, COLOURS);
  return frequent.map(([count, ...rgb]) => rgb.map((sum) => Math.round(sum / count)));
}

/** Return a function that returns the index of the palette's nearest colour. */
function nearest(palette) {
  const known = new Int16Array(1 << 15).fill(-1);
  return (r, g, b) => {
    const group = key(r, g, b);
    if (known[group] < 0) {
      const distance = ([x, y, z]) => (x - r) ** 2 + (y - g) ** 2 + (z - b) ** 2;
      known[group] = palette.reduce((best, one, i) => (distance(one) < distance(palette[best]) ? i : best), 0);
    }
    return known[group];
  };
}

/** Compress indices by LZW with codes of 9 to 12 bits. */
function compress(pixels) {
  const out = [];
  let [buffer, bits, size] = [0, 0, 9];
  const write = (code) => {
    buffer |= code << bits;
    for (bits += size; bits >= 8; bits -= 8, buffer >>>= 8) out.push(buffer & 255);
  };
  let codes = new Map(); // prefix code * 256 + index -> code
  let next = END + 1;
  write(CLEAR);
  let prefix = pixels[0];
  for (let i = 1; i < pixels.length; i++) {
    const pair = prefix * COLOURS + pixels[i];
    const code = codes.get(pair);
    if (code !== undefined) {
      prefix = code;
      continue;
    }
    write(prefix);
    if (next === MOST_CODES) {
      write(CLEAR);
      [codes, next, size] = [new Map(), END + 1, 9];
    } else {
      if (next === 1 << size) size += 1;
      codes.set(pair, next++);
    }
    prefix = pixels[i];
  }
  write(prefix);
  write(END);
  if (bits) out.push(buffer & 255);
  return out;
}

/** Split data into blocks of at most 255 bytes, each after its length. */
function blocks(data) {
  const count = Math.ceil(data.length / 255);
  const out = new Uint8Array(data.length + count + 1);
  for (let i = 0; i < count; i++) {
    const part = data.slice(255 * i, 255 * (i + 1));
    out[256 * i] = part.length;
    out.set(part, 256 * i + 1);
  }
  return out;
}
