/* The last seconds of a run as an animated picture. */

import { element } from "./elements.js";
import { encodeGif } from "./gif.js";
import { fileName, saveFile } from "./library.js";
import { Recording } from "./recording.js";
import { Scene } from "./scene.js";

const [WIDTH, HEIGHT] = [528, 300];
const MOST_FRAMES = 600; // 10 s
const STEP = 3; // frames per picture: 20 pictures per second
const AFTER = 45; // frames after the end

/** Let the browser save the last ten seconds of a run as a GIF file.  run: Recording. */
export async function saveGif({ level, inputs }) {
  const recording = new Recording(level, { inputs });
  const canvas = element("canvas", { class: "painter gif" });
  document.body.append(canvas);
  const scene = new Scene(canvas);
  scene.setLevel(level);
  const small = element("canvas", { width: WIDTH, height: HEIGHT });
  const context = small.getContext("2d", { willReadFrequently: true });
  const pictures = [];
  const over = recording.outcome !== "running";
  for (let f = Math.max(0, recording.frames - MOST_FRAMES); f <= recording.frames + (over ? AFTER : 0); f += STEP) {
    const points = recording.points.slice(Math.max(0, f - 240), f + 1);
    scene.draw({ world: recording.seek(f), age: Math.max(0, f - recording.frames), trails: [{ points }] });
    context.drawImage(canvas, 0, 0, WIDTH, HEIGHT);
    pictures.push(context.getImageData(0, 0, WIDTH, HEIGHT));
  }
  scene.destroy();
  canvas.remove();
  const data = await encodeGif(pictures, 5, () => new Promise((resolve) => setTimeout(resolve)));
  saveFile(data, `${fileName({ title: level.name, id: level.id })}.gif`);
}
