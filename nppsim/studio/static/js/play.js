/* Play a level at 60 frames per second.  Phases: "ready" (waits for the first key), "running",
 * "paused", "rewinding", "over".
 */

import { Clock, FRAME_MS, Pacing, score, seconds } from "./clock.js";
import { ACTIONS, Controls, keyName } from "./controls.js";
import { actionButton, div, element, linkButton, panel, selectOf, supportBanner, table, tableRow } from "./elements.js";
import { loadLevel } from "./engine.js";
import { INPUTS } from "./input_byte.js";
import { RecordedRuns, drawIfBest } from "./recorded_runs.js";
import { PLANNERS, planned } from "./planner.js";
import { copyLink } from "./share.js";
import { solveButton } from "./solve.js";
import { addBest, best as bestRuns, ownBest } from "./store.js";
import { targetText } from "./targets.js";
import { storeDialog } from "./store_dialog.js";
import { Recording } from "./recording.js";
import { keysPanel } from "./keys.js";
import { Scene } from "./scene.js";

const RATES = [1, 0.5, 0.25, 0.1]; // speed relative to real time
const REWIND_FRAMES = 2; // per display tick
const TRAIL = 240; // frames
const DEATH_MS = 700; // duration of the death animation
const RESTART_DELAY_MS = 350; // delay after the end before a jump restarts
const MOST_BEST = 8; // runs in a list of the best runs
const TOUCH = { left: "◀", right: "▶", restart: "↺", jump: "▲" }; // buttons on touch screens
const NAME_STORE = "nppsim.name",
  DEFAULT_NAME = "you"; // player's name in the leaderboard

export async function show(root, studio, id) {
  if (!id) {
    studio.go("#/levels");
    return undefined;
  }
  const [level, best] = await Promise.all([loadLevel(id), bestRuns(id)]);
  const play = new Play(root, studio, level, best);
  return () => play.destroy();
}

export class Play {
  /** @type {AbortController} */
  leaving; // ends the search when the view closes
  /** @type {HTMLElement[]} */
  caps; // pressed keys

  /** @param {any} episode - null, or {code, at: place of the level, count, frames, gold, assisted: sums of the levels
   *   before it, best: best runs, next(total), again()} */
  constructor(root, studio, level, best, episode = null) {
    this.studio = studio;
    this.level = level;
    this.episode = episode;
    this.phase = "ready";
    this.mark = 0;
    this.attempts = 1;
    this.assisted = false; // rewound, slowed down or taken over: not in the leaderboard
    this.work = new AbortController(); // ends the planner's search
    this.armed = true; // whether a pressed key starts the run
    this.clock = new Clock();
    this.pacing = new Pacing();
    this.build(root);
    this.showBest(best);
    this.scene = new Scene(this.canvas);
    this.scene.setLevel(level);
    this.setCloser(this.scene.isLong);
    this.controls = new Controls((action) => this.act(action));
    this.recordedRuns = new RecordedRuns(this.recordedRunList, level, studio, {
      changed: () => this.draw(),
      takeOver: (inputs) => this.takeOver(inputs),
      preview: (recording, frame) => this.preview(recording, frame),
    });
    this.hide = () => document.hidden && this.pause();
    document.addEventListener("visibilitychange", this.hide);
    this.run = new Recording(level);
    this.fresh = true; // whether the last frame has not been drawn
    this.enter("ready");
    this.recordedRuns.load().catch(studio.failed);
    this.findPar().catch(studio.failed);
    this.canvas.focus();
    this.request = requestAnimationFrame((now) => this.tick(now));
  }

  /** Show the par for the chosen objective; the planner searches for it in the background if it is unknown. */
  async findPar() {
    const {
      level,
      objective: { value: objective },
    } = this;
    const isTime = objective === "time";
    /** @type {import("./store.js").Plan | null} */
    let found = null;
    if (!isTime || !level.par) {
      this.work.abort();
      this.work = new AbortController();
      const { signal } = this.work;
      const progress = (simulated) =>
        (this.par.textContent = `the planner searches … ${Math.round(simulated / 1000).toLocaleString()} k frames`);
      this.par.textContent = "the planner searches …";
      try {
        found = await planned(level, objective, { signal, progress });
      } catch (error) {
        if (signal.aborted) return; // another objective was chosen, or another view
        this.par.textContent = "unknown";
        throw error;
      }
      if (isTime) level.par = found?.frames ?? null;
    }
    this.par.title = "the best run that is known here; a better one may exist";
    this.showBest(await bestRuns(level.id));
    if (isTime) return;
    this.par.textContent = found
      ? `${seconds(found.frames)} · ${found.gold} gold · score ${score(found.frames, found.gold).toFixed(3)} ` +
        `by ${found.by ?? PLANNERS[objective]}, not proved`
      : "unknown: the planner finds no run";
  }

  /** The fastest known run {frames, name}: of a person, an agent or the planner; null if there is none. */
  get fastest() {
    const { par } = this.level;
    const known = [...this.best.time, ...(par ? [{ frames: par, name: PLANNERS.time }] : [])];
    return known.length ? known.reduce((a, b) => (b.frames < a.frames ? b : a)) : null;
  }

  showPar() {
    const { fastest } = this;
    this.par.textContent = fastest
      ? `${seconds(fastest.frames)} by ${fastest.name}, not proved`
      : "unknown: the planner finds no run";
  }

  destroy() {
    cancelAnimationFrame(this.request);
    this.work.abort();
    this.leaving.abort();
    document.removeEventListener("visibilitychange", this.hide);
    this.controls.destroy();
    this.scene.destroy();
  }

  // -------------------------------------------------------------------------------------------------------------------
  // The loop

  tick(now) {
    this.request = requestAnimationFrame((next) => this.tick(next));
    this.controls.readGamepads();
    const { controls } = this;
    if (!controls.pressing) this.armed = true;
    if (controls.holds("rewind")) this.rewindOn();
    else if (this.phase === "rewinding") this.enter("ready");
    if (this.phase === "ready" && this.armed && controls.pressing) this.enter("running");
    if (this.phase === "running") this.advance(this.clock.due(now));
    if (this.phase === "over" && now - this.ended > RESTART_DELAY_MS && controls.tapped.has("jump")) this.goOn();
    if (this.fresh) {
      this.fresh = false;
      if (this.phase === "running") this.pacing.drawn(now);
      this.draw();
      if (this.over && this.phase === "running") this.end(now);
    } else if (this.phase === "over" && this.run.outcome === "died" && now - this.ended < DEATH_MS) {
      this.draw();
    }
  }

  /** True after a win or death. */
  get over() {
    return this.run.outcome !== "running";
  }

  /** Play inputs; a run that is too long pauses the game with a message. */
  step(inputs) {
    this.fresh = true;
    try {
      this.run.play(inputs);
    } catch (error) {
      this.pause();
      this.studio.failed(error);
    }
  }

  advance(frames) {
    if (!frames) return;
    const inputs = Array.from({ length: frames }, () => this.controls.sample());
    const began = performance.now();
    this.step(inputs);
    this.pacing.answered(performance.now() - began);
  }

  rewindOn() {
    if (this.phase !== "rewinding") this.enter("rewinding");
    this.assisted = true;
    if (this.run.frames > 0) this.goBack(REWIND_FRAMES);
  }

  /** Go back some frames.  A practice mark after that frame moves back to it. */
  goBack(frames) {
    const to = Math.max(this.run.frames - frames, 0);
    this.mark = Math.min(this.mark, to);
    this.rewind(to);
  }

  rewind(to) {
    this.run.rewind(to);
    this.fresh = true;
  }

  end(now) {
    this.ended = now;
    this.enter("over");
    const { run } = this;
    if (run.outcome !== "won" || this.assisted || this.episode?.assisted) return;
    this.addBest().catch(this.studio.failed);
    this.record = run.frames < (ownBest(this.best) ?? Infinity);
    drawIfBest(run);
    this.recordedRuns.fill();
    this.drawPhase();
  }

  /** Add the run that has just won to the best runs of the level, and of an episode that it completes. */
  async addBest() {
    const { run, episode } = this;
    const mine = { kind: "person", name: this.player.value.trim() || DEFAULT_NAME };
    const [frames, gold] = [run.frames, run.gold()];
    const best = await addBest(this.level.id, { ...mine, frames, gold });
    if (!episode || !this.isLast) return this.showBest(best);
    const sums = { frames: episode.frames + frames, gold: episode.gold + gold, levels: episode.count };
    return this.showBest(best, await addBest(episode.code, { ...mine, ...sums }));
  }

  /** Restart; after a won level of an episode, go on to the next level, or to the first one again. */
  goOn() {
    const { episode, run } = this;
    if (run.outcome !== "won" || !episode) {
      this.restart(false);
      return;
    }
    this.enter("leaving");
    const total = {
      frames: episode.frames + run.frames,
      gold: episode.gold + run.gold(),
      assisted: episode.assisted || this.assisted,
    };
    (this.isLast ? episode.again() : episode.next(total)).catch(this.studio.failed);
  }

  /** True for the last level of the episode. */
  get isLast() {
    return this.episode.at === this.episode.count - 1;
  }

  /** Show the best runs of the level and of the episode.  episode: its best runs, if they have changed. */
  showBest(best, episode = this.episode?.best) {
    if (episode) this.episode.best = episode;
    this.best = best;
    if (this.par.title && this.objective.value === "time") this.showPar();
    const parts = episode
      ? [
          element("h3", { text: `Episode ${this.episode.code}` }),
          bestTable(episode),
          element("h3", { text: "This level" }),
        ]
      : [];
    this.bestRuns.replaceChildren(...parts, bestTable(best));
    this.drawPhase();
  }

  enter(phase) {
    this.phase = phase;
    this.clock.reset();
    this.pacing.pause();
    if (phase !== "running") this.controls.tapped.clear();
    if (phase === "ready" || phase === "running") this.record = false;
    if (phase === "running" && this.run.frames === 0) this.assisted = this.clock.rate !== 1;
    this.drawPhase();
  }

  // -------------------------------------------------------------------------------------------------------------------
  // Actions of keys and buttons

  act(action) {
    const actions = {
      restart: () => this.restart(true),
      pause: () => (this.phase === "paused" ? this.enter("running") : this.pause()),
      slower: () => this.setRate(RATES[(RATES.indexOf(this.clock.rate) + 1) % RATES.length]),
      step: () => this.stepOnce(),
      back: () => this.stepBack(),
      mark: () => this.setMark(),
      store: () => this.storeRun(),
      view: () => this.setCloser(!this.closer),
      next: () => this.level.next && this.studio.go(`#/play/${this.level.next}`),
    };
    actions[action]?.();
  }

  /** Restart from the spawn or the practice mark.  armed: keys that are already down start the run. */
  restart(armed) {
    this.recordedRuns.endPreview();
    this.armed = armed;
    this.assisted ||= this.mark > 0;
    this.enter("ready");
    this.attempts += 1;
    this.rewind(this.mark);
    this.drawPhase();
  }

  pause() {
    if (this.phase === "running") this.enter("paused");
  }

  setRate(rate) {
    this.clock.rate = rate;
    this.assisted ||= rate !== 1;
    this.rates.value = rate;
    this.drawPhase();
  }

  stepOnce() {
    if (this.phase === "over") return;
    this.assisted = true;
    this.enter("paused");
    this.step([this.controls.sample()]);
    if (this.over) this.end(performance.now());
  }

  stepBack() {
    if (this.run.frames === 0) return;
    this.assisted = true;
    this.enter("paused");
    this.goBack(1);
  }

  setCloser(closer) {
    this.closer = closer;
    this.scene.fit(closer ? "closer" : "level");
    this.viewButton.setAttribute("aria-pressed", closer);
    this.draw();
  }

  setMark() {
    this.mark = this.mark ? 0 : this.run.frames;
    this.drawPhase();
  }

  takeOver(inputs) {
    this.run.edit(0, inputs);
    [this.mark, this.assisted, this.fresh] = [this.run.frames, true, true];
    this.enter("ready");
    this.canvas.focus();
  }

  async storeRun() {
    if (this.run.frames === 0) {
      this.studio.toast("Play first: there is no run to store yet.");
      return;
    }
    this.pause();
    await storeDialog(this.run);
    this.recordedRuns.load().catch(this.studio.failed);
    this.canvas.focus();
  }

  async saveGif(button) {
    if (this.run.frames === 0) {
      this.studio.toast("Play first: there is no run yet.");
      return;
    }
    this.pause();
    button.disabled = true;
    try {
      const { saveGif } = await import("./gif_film.js");
      await saveGif(this.run);
    } catch (error) {
      this.studio.failed(error);
    }
    button.disabled = false;
    this.canvas.focus();
  }

  copyLink() {
    const inputs = this.run.outcome === "won" ? this.run.inputs : null;
    copyLink(this.studio, this.level, inputs).catch(this.studio.failed);
  }

  // -------------------------------------------------------------------------------------------------------------------
  // The page

  draw() {
    if (!this.run || this.previewing) return;
    const { run } = this;
    const [f, gold] = [run.frames, run.gold()];
    const age = this.phase === "over" && run.outcome === "died" ? (performance.now() - this.ended) / FRAME_MS : 0;
    const points = run.points.slice(Math.max(0, f - TRAIL));
    this.scene.draw({ world: run.seek(f), age, others: this.recordedRuns.at(f), trails: [{ points }] });
    this.showClock(f, gold);
    this.numbers.textContent = `${seconds(f)} · frame ${f} · ${run.speed(f).toFixed(2)} px/frame · gold ${gold}`;
    this.caps.forEach((cap, k) => cap.classList.toggle("pressed", (run.input(f) & INPUTS[k].bit) !== 0));
  }

  /** Show a frame of another run; null: show the game again. */
  preview(recording, frame) {
    this.previewing = recording !== null;
    if (!recording) {
      this.draw();
      return;
    }
    this.pause();
    this.scene.draw({
      world: recording.seek(frame),
      trails: [{ points: recording.points.slice(0, frame + 1), colour: recording.colour }],
    });
    this.showClock(frame, recording.gold(frame));
  }

  /** Show the game's clock; in the game, the run ends at 0. */
  showClock(frames, gold) {
    const left = this.timeLeft(frames, gold);
    this.time.textContent = Math.max(left, 0).toFixed(3);
    this.time.classList.toggle("bad", left < 0);
  }

  /** Return the time left on the clock, which an episode carries from level to level. */
  timeLeft(frames, gold) {
    const { frames: before = 0, gold: collected = 0, at = 0 } = this.episode ?? {};
    return score(before + frames, collected + gold, at + Math.min(frames, 1));
  }

  drawPhase() {
    if (!this.run) return;
    const { episode } = this;
    const best = ownBest(this.best);
    const [restart, jump] = isTouch()
      ? [TOUCH.restart, TOUCH.jump]
      : ["restart", "jump"].map((action) => keyName(this.controls.bindings[action][0] ?? "?"));
    const { outcome: o, frames: f } = this.run;
    const key = isTouch() ? "tap" : "key";
    const words = {
      ready: ["Ready", f ? `continues with your next ${key}` : `starts with your first ${key}`],
      paused: ["Paused", `${isTouch() ? "Continue" : keyName(this.controls.bindings.pause[0] ?? "?")} continues`],
      rewinding: ["Rewind", ""],
      over:
        o === "won"
          ? [
              `${this.timeLeft(f, this.run.gold()).toFixed(3)} · ${seconds(f)}${this.record ? " · your best" : ""}`,
              (this.assisted || episode?.assisted ? "assisted, not in the leaderboard · " : "") +
                this.afterWin(jump, restart),
            ]
          : ["Dead", `${jump} or ${restart} tries again`],
    }[this.phase];
    this.verdict.hidden = !words;
    if (words) this.verdict.replaceChildren(element("b", { text: words[0] }), element("span", { text: words[1] }));
    this.verdict.className = `verdict ${this.phase === "over" ? (o === "won" ? "good" : "bad") : "chip"}`;
    this.bests.textContent = [
      episode ? `${episode.code} · level ${episode.at + 1} of ${episode.count}` : null,
      best ? `best ${seconds(best)}` : null,
      this.fastest ? `par ${seconds(this.fastest.frames)}` : null,
    ]
      .filter(Boolean)
      .join(" · ");
    this.bests.hidden = !this.bests.textContent;
    this.attempt.textContent = String(this.attempts);
    this.pauseButton.textContent = this.phase === "paused" ? "Continue" : "Pause";
    this.markButton.setAttribute("aria-pressed", this.mark > 0);
    this.markButton.textContent = this.mark ? `Practising from ${seconds(this.mark)}` : "Practise from here";
    const pacing = this.pacing.summary();
    this.pace.textContent = pacing
      ? `${pacing.frames} frames, ${(100 * pacing.share).toFixed(2)} % within 20 ms ` +
        `(worst ${pacing.worst.toFixed(1)} ms); ` +
        `from input to state ${pacing.median.toFixed(1)} ms, 99 % within ${pacing.late.toFixed(1)} ms`
      : "nothing played yet";
  }

  /** Return the text on what the keys do after a win. */
  afterWin(jump, restart) {
    if (!this.episode) return `${jump} or ${restart} plays again`;
    return this.isLast
      ? `the episode is finished · ${jump} plays it again`
      : `${jump} goes on to level ${this.episode.at + 2}`;
  }

  build(root) {
    const button = (text, action, attributes = {}) =>
      element("button", {
        type: "button",
        text,
        title: ACTIONS[action][0],
        ...attributes,
        onclick: () => this.act(action),
      });
    this.canvas = element("canvas", { tabindex: 0, role: "img", "aria-label": `The level ${this.level.name}` });
    this.time = element("span", { class: "chip clock", id: "time" });
    this.numbers = element("span", { class: "chip numbers" });
    this.bests = element("span", { class: "chip" });
    this.verdict = element("div", { class: "verdict", role: "status" });
    this.caps = INPUTS.map(({ label }) => element("kbd", { text: label }));
    this.attempt = element("dd");
    this.par = element("span");
    const objectives = [["time", "time"], ["score", "score"], ["all-gold", "all gold"]];
    this.objective = selectOf("Objective of par", objectives, () => this.findPar().catch(this.studio.failed));
    this.viewButton = button("Closer", "view", { "aria-pressed": false });
    this.pauseButton = button("Pause", "pause");
    this.markButton = button("Practise from here", "mark");
    const rates = RATES.map((rate) => [rate, rate === 1 ? "full speed" : `${rate}× speed`]);
    this.rates = selectOf("Speed", rates, (rate) => this.setRate(Number(rate)));
    this.bestRuns = div("best");
    this.player = element("input", {
      type: "text",
      maxlength: 40,
      value: localStorage.getItem(NAME_STORE) ?? DEFAULT_NAME,
      autocomplete: "off",
      onchange: () => localStorage.setItem(NAME_STORE, this.player.value.trim() || DEFAULT_NAME),
    });
    this.recordedRunList = element("div");
    this.leaving = new AbortController();
    const stored = () => Promise.all([this.recordedRuns.load(), this.findPar()]).catch(this.studio.failed);
    const solving = solveButton(this.level, this.studio, this.leaving.signal, () => this.objective.value, stored);
    this.pace = element("p", { class: "small muted", id: "pacing" });
    const facts = [
      ...(this.level.code ? [["id", this.level.code]] : []),
      ["category", this.level.category ?? "none"],
      ...(this.level.target ? [["target", targetText(this.level.target)]] : []),
    ];
    root.replaceChildren(
      div(
        "split play",
        div(
          "field",
          supportBanner(this.level),
          div(
            "stage",
            this.canvas,
            div(
              "hud",
              this.time,
              this.verdict,
              this.bests,
              this.numbers,
              element("div", { class: "keys", "aria-label": "Keys of this frame" }, this.caps),
            ),
            this.touchButtons(),
          ),
        ),
        element(
          "div",
          { class: "panels", onclick: (event) => this.clicked(event) },
          panel(
            null,
            element("h1", { text: this.level.name }),
            element(
              "dl",
              { class: "facts" },
              facts.map(([name, value]) => [element("dt", { text: name }), element("dd", { text: value })]),
              element("dt", {}, "par ", this.objective),
              element("dd", { class: "par" }, this.par, solving),
              element("dt", { text: "attempt" }),
              this.attempt,
            ),
            div(
              "bar",
              button("Restart", "restart", { class: "primary" }),
              this.pauseButton,
              button("Store run …", "store"),
              actionButton("Save GIF", (event) => this.saveGif(event.currentTarget), {
                title: "the last 10 seconds of this run as an animated picture",
              }),
              actionButton("Copy link", () => this.copyLink(), {
                title: "a link to this level; after a win, with your run",
              }),
              this.viewButton,
              this.level.next && linkButton("Next level", `#/play/${this.level.next}`, { title: ACTIONS.next[0] }),
              this.level.episode &&
                !this.episode &&
                linkButton(`Play ${this.level.episode}`, `#/episode/${this.level.episode}`, {
                  title: "the episode of five levels, with one clock",
                }),
              linkButton("Edit", `#/edit/${this.level.id}`),
              linkButton("Inputs", `#/inputs/${this.level.id}`, { title: "edit the inputs of a run frame by frame" }),
              linkButton("Watch an agent", `#/watch/${this.level.id}`),
            ),
          ),
          panel(
            "Practice",
            div("bar", this.markButton, this.rates, button("−1 frame", "back"), button("+1 frame", "step")),
          ),
          panel("Best runs", this.bestRuns, element("label", { class: "small" }, "Your name ", this.player)),
          panel("Other runs", this.recordedRunList),
          panel("Keys", keysPanel(() => this.controls)),
          element("details", { class: "panel" }, element("summary", { text: "Frame times" }), this.pace),
        ),
      ),
    );
  }

  /** Return the focus to the game after a click beside the stage. */
  clicked({ detail, target }) {
    if (detail && !target.closest("select, input[type=range], .recorded-run button, .key"))
      setTimeout(() => this.canvas.focus());
  }

  touchButtons() {
    const pad = (action) => {
      const text = TOUCH[action];
      const made = element("button", { type: "button", tabindex: -1, "aria-label": ACTIONS[action][0], text });
      made.addEventListener("pointerdown", (event) => {
        event.preventDefault();
        made.setPointerCapture(event.pointerId);
        this.controls.press(action, `touch ${action}`);
      });
      for (const name of ["pointerup", "pointercancel"])
        made.addEventListener(name, () => this.controls.release(`touch ${action}`));
      made.addEventListener("contextmenu", (event) => event.preventDefault());
      return made;
    };
    return div("touch", pad("left"), pad("right"), element("span", { class: "spacer" }), pad("restart"), pad("jump"));
  }
}

/** Return whether the page is used by touch. */
const isTouch = () => matchMedia("(pointer: coarse)").matches;

/** Return the table of the best runs of a level or an episode. */
function bestTable({ time, score: points }) {
  const rows = (runs) =>
    runs
      .slice(0, MOST_BEST)
      .map(({ name, frames, gold, score: total }) =>
        tableRow(element("th", { scope: "row", text: name }), total.toFixed(3), (frames / 60).toFixed(3), gold),
      );
  const list = (title, runs) =>
    element(
      "tbody",
      { "data-by": title },
      tableRow(element("th", { colspan: 4, class: "muted", text: title })),
      rows(runs),
    );
  return time.length
    ? table(["", "score", "s", "gold"], {}, list("highest score", points), list("fastest", time))
    : element("p", { class: "small muted", text: "No run has finished yet." });
}
