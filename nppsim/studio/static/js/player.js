/* Player of one or more runs of a level; one run is followed, the others are drawn pale.
 *
 *     const player = new Player(root, { level, runs });    // a level document, Recordings of that level
 *     player.add(run);  player.seek(120);  player.play();  player.destroy();
 *     player.update(0);                                    // after a change of a run
 *
 * overlay: function (frame) -> further fields for Scene.draw, such as under and over.  growing: true if more frames may
 * be appended; playback then waits for them at the end.  repeats: true if playback begins again at the end.  stops:
 * frames at which playback pauses.
 *
 * The studio, `nppsim page` and reports use it.  Keys, while it has the focus: space, arrows (with shift: ten frames),
 * home, end, + - 0 for the view, 1 to 9 to follow a run.
 */

import { score, seconds } from "./clock.js";
import { actionButton, div, dot, element, selectOf, supportBanner, takesKeys } from "./elements.js";
import { INPUTS } from "./input_byte.js";
import { partingFrame } from "./recording.js";
import { Scene } from "./scene.js";
import { Timeline } from "./timeline.js";

const SPEEDS = [0.1, 0.25, 0.5, 1, 2, 4];
export const RUN_COLOURS = ["#2f6fd0", "#d9730d", "#20935c", "#b83fa0", "#8a6d1a", "#0f8f9c", "#c03a48", "#6a58c9"];

export class Player {
  /** @type {Timeline} */
  timeline;
  /** @type {HTMLElement[]} */
  caps; // pressed keys
  request = 0; // of the next animation frame

  /**
   * @param {HTMLElement} root
   * @param {{level: any, runs?: import("./recording.js").Recording[]}} shown - level: level document
   */
  constructor(root, { level, runs = [] }) {
    this.level = level;
    this.runs = []; // [{recording, colour, chip, end}]
    this.frame = 0;
    this.rate = 1;
    this.playing = false;
    this.main = 0;
    this.overlay = (_) => ({});
    this.growing = false;
    this.repeats = false;
    this.stops = [];
    this.build(root);
    this.scene = new Scene(this.canvas);
    this.scene.setLevel(level);
    this.canvas.parentElement.style.setProperty("--aspect", this.scene.aspect);
    this.scene.fit();
    if (this.scene.isLong) this.scene.fit("closer");
    this.timeline.show([], []);
    for (const run of runs) this.add(run);
    this.seek(0);
  }

  get last() {
    return Math.max(0, ...this.runs.map(({ recording }) => recording.frames));
  }

  add(recording) {
    const colour = recording.colour ?? RUN_COLOURS[this.runs.length % RUN_COLOURS.length];
    const index = this.runs.length;
    const end = element("span");
    const chip = element(
      "button",
      { type: "button", class: "run", title: "follow this run", onclick: () => this.follow(index) },
      dot(colour),
      element("span", { text: recording.label || `run ${index + 1}` }),
      end,
    );
    this.runs.push({ recording, colour, chip, end });
    this.list.append(chip);
    this.showEnd(index);
    this.follow(this.main);
  }

  rename(index, label) {
    const { recording, chip } = this.runs[index];
    recording.label = label;
    chip.children[1].textContent = label;
  }

  /** Remove the last run. */
  drop() {
    this.runs.pop().chip.remove();
    this.follow(0);
  }

  /** Show a run that has changed. */
  update(index) {
    this.showEnd(index);
    this.follow(this.main);
  }

  showEnd(index) {
    const { recording, end } = this.runs[index];
    end.className = { won: "good", running: "muted" }[recording.outcome] ?? "bad";
    const ending = recording.outcome === "running" && !this.growing ? "not finished" : recording.outcome;
    end.textContent = `${ending} ${seconds(recording.frames)}`;
  }

  /** Follow a run: draw its world (doors, gold, drones), with the other runs drawn pale. */
  follow(index) {
    this.main = index;
    this.runs.forEach(({ chip }, i) => chip.setAttribute("aria-pressed", i === index));
    this.parted = this.runs.map(({ recording }, i) =>
      i === index ? null : partingFrame(this.runs[index].recording, recording),
    );
    this.timeline.show(this.runs, this.parted);
    this.slider.max = this.last;
    this.seek(this.frame);
  }

  seek(frame) {
    this.frame = Math.min(Math.max(frame, 0), this.last);
    const f = Math.floor(this.frame);
    this.slider.value = f;
    this.slider.setAttribute("aria-valuetext", `frame ${f}, ${seconds(f)}`);
    this.timeline.seek(f);
    if (this.runs.length) this.draw(f);
  }

  draw(f) {
    const { recording } = this.runs[this.main];
    const others = this.runs.filter((_, i) => i !== this.main);
    const trail = ({ recording: r, colour }) => ({
      points: r.points.slice(Math.max(0, f - 240), f + 1),
      colour,
      width: 1.4,
    });
    this.scene.draw({
      world: recording.seek(f),
      age: Math.max(0, f - recording.frames),
      trails: this.runs.map(trail),
      others: others.map(({ recording: r, colour }) => ({ look: r.look(f), colour, label: r.label })),
      ...this.overlay(f),
    });
    this.clock.textContent = `${seconds(f)} · frame ${f}`;
    const gold = recording.gold(f);
    const points = recording.outcome === "won" ? ` · score ${score(recording.frames, gold).toFixed(3)}` : "";
    const over = f >= recording.frames && recording.outcome !== "running" ? ` · ${recording.outcome}${points}` : "";
    this.state.textContent = `${recording.speed(f).toFixed(2)} px/frame · gold ${gold}${over}`;
    const keys = f <= recording.frames ? recording.input(f) : 0;
    this.caps.forEach((cap, i) => cap.classList.toggle("pressed", (keys & INPUTS[i].bit) !== 0));
  }

  /** Start playback, from the start if the end is reached. */
  play() {
    if (this.frame >= this.last && !this.growing) this.seek(0);
    this.setPlaying(true);
    let before = null;
    const tick = (now) => {
      if (!this.playing) return;
      const next = Math.min(
        this.frame + (before === null ? 0 : Math.min((now - before) / 1000, 0.25) * 60 * this.rate),
        this.last,
      );
      before = now;
      const stop = this.stops.find((frame) => frame > this.frame && frame <= next);
      if (stop !== undefined) {
        this.pause();
        this.seek(stop);
        return;
      }
      if (Math.floor(next) !== Math.floor(this.frame)) this.seek(next);
      else this.frame = next; // no new frame to draw
      if (this.frame >= this.last && this.repeats) this.seek(0);
      if (this.frame >= this.last && !this.growing) this.pause();
      else this.request = requestAnimationFrame(tick);
    };
    this.request = requestAnimationFrame(tick);
  }

  pause() {
    cancelAnimationFrame(this.request);
    this.setPlaying(false);
    this.frame = Math.floor(this.frame);
  }

  /** Remove all listeners; call it when the player is removed from the page. */
  destroy() {
    this.pause();
    this.scene.destroy();
    this.timeline.destroy();
  }

  setPlaying(playing) {
    this.playing = playing;
    this.button.textContent = playing ? "❚❚" : "▶";
    this.button.title = playing ? "pause" : "play";
    this.button.setAttribute("aria-label", this.button.title);
  }

  step(frames) {
    this.pause();
    this.seek(Math.floor(this.frame) + frames);
  }

  build(root) {
    const button = (text, label, onclick) =>
      actionButton(text, onclick, { class: "icon", "aria-label": label, title: label });
    this.canvas = element("canvas", { role: "img", "aria-label": `Level ${this.level.name}, a run of it` });
    this.clock = element("span", { class: "chip clock" });
    this.state = element("span", { class: "chip" });
    this.caps = INPUTS.map(({ label }) => element("kbd", { text: label }));
    this.list = element("div", { class: "runs", role: "group", "aria-label": "Runs" });
    this.button = button("▶", "play", () => (this.playing ? this.pause() : this.play()));
    this.slider = element("input", {
      type: "range",
      min: 0,
      max: 0,
      step: 1,
      "aria-label": "Frame",
      oninput: () => {
        this.pause();
        this.seek(Number(this.slider.value));
      },
    });
    const speeds = SPEEDS.map((rate) => [rate, `${rate}×`]);
    this.rates = selectOf("Speed", speeds, (rate) => (this.rate = Number(rate)), 1);
    const lanes = element("div", { class: "lanes", "aria-hidden": "true" });
    root.classList.add("player");
    root.replaceChildren(
      supportBanner(this.level) ?? "",
      div(
        "stage",
        this.canvas,
        div("hud", this.clock, this.state, element("div", { class: "keys", "aria-label": "Pressed keys" }, this.caps)),
      ),
      div(
        "transport",
        div(
          "buttons",
          button("«", "to the start", () => this.step(-Infinity)),
          button("‹", "one frame back", () => this.step(-1)),
          this.button,
          button("›", "one frame forward", () => this.step(1)),
          this.slider,
          this.rates,
          button("⤢", "show all of the level", () => {
            this.scene.fit();
            this.scene.redraw();
          }),
        ),
        lanes,
        this.list,
      ),
    );
    this.timeline = new Timeline(lanes, (frame) => {
      this.pause();
      this.seek(frame);
    });
    root.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener(
      "wheel",
      (event) => {
        if (!event.ctrlKey && document.activeElement !== this.canvas) return; // let the page scroll
        event.preventDefault();
        this.scene.zoom(Math.exp(-event.deltaY / 400), event.offsetX, event.offsetY);
      },
      { passive: false },
    );
    this.canvas.tabIndex = 0;
    this.drag();
  }

  /** Add pointer listeners: dragging moves the view, two fingers also zoom it, and a click starts or pauses
   *  playback. */
  drag() {
    const fingers = new Map(); // pressed pointers: id -> [x, y], px of the canvas
    let moved = 0;
    this.canvas.addEventListener("pointerdown", (event) => {
      moved = fingers.size ? Infinity : 0;
      fingers.set(event.pointerId, [event.offsetX, event.offsetY]);
      this.canvas.setPointerCapture(event.pointerId);
    });
    this.canvas.addEventListener("pointermove", (event) => {
      if (!fingers.has(event.pointerId)) return;
      const before = [...fingers.values()];
      fingers.set(event.pointerId, [event.offsetX, event.offsetY]);
      const after = [...fingers.values()];
      const [[x, y], [fromX, fromY]] = [middle(after), middle(before)];
      moved += Math.abs(x - fromX) + Math.abs(y - fromY);
      if (moved <= 4) return;
      if (after.length > 1) this.scene.zoom(spread(after) / spread(before), x, y);
      const { scale } = this.scene.view;
      this.scene.pan((x - fromX) / scale, (y - fromY) / scale);
    });
    // One finger scrolls the page; two fingers must not.
    this.canvas.addEventListener(
      "touchmove",
      (event) => event.touches.length > 1 && event.cancelable && event.preventDefault(),
      { passive: false },
    );
    const lift = (event) => fingers.delete(event.pointerId) && !fingers.size;
    this.canvas.addEventListener("pointercancel", lift);
    this.canvas.addEventListener("pointerup", (event) => {
      if (lift(event) && moved <= 4) this.playing ? this.pause() : this.play();
    });
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || takesKeys(event.target)) return;
    const step = event.shiftKey ? 10 : 1;
    const actions = {
      ArrowLeft: () => this.step(-step),
      ArrowRight: () => this.step(step),
      Home: () => this.step(-Infinity),
      End: () => this.step(Infinity),
      "+": () => this.scene.zoom(1.25),
      "-": () => this.scene.zoom(0.8),
      0: () => {
        this.scene.fit();
        this.scene.redraw();
      },
    };
    if (event.key === " " && !(event.target instanceof HTMLButtonElement))
      actions[" "] = () => (this.playing ? this.pause() : this.play());
    if (event.key >= "1" && event.key <= "9" && this.runs[event.key - 1])
      actions[event.key] = () => this.follow(event.key - 1);
    if (!(event.key in actions)) return;
    event.preventDefault();
    actions[event.key]();
  }
}

/** @type {(places: number[][]) => [number, number]} */
function middle(places) {
  const mean = (axis) => places.reduce((sum, place) => sum + place[axis], 0) / places.length;
  return [mean(0), mean(1)];
}

/** Return the distance of the first two positions, px.
 *  @type {(places: number[][]) => number} */
function spread([[ax, ay], [bx, by]]) {
  return Math.max(Math.hypot(ax - bx, ay - by), 1);
}
