/* View "Inputs": edits the inputs of a run frame by frame, and replays from the nearest snapshot before a change.
 *
 * Branches are versions of the inputs with names, markers and a history; they are stored in the browser.
 */

import { continued } from "./agents.js";
import { get, whileCompiling } from "./api.js";
import { seconds } from "./clock.js";
import { actionButton, confirmed, div, element, linkButton, panel } from "./elements.js";
import { loadLevel } from "./engine.js";
import { findRun } from "./library.js";
import { levelOf, search } from "./planner.js";
import { putBranches, storedBranches } from "./store.js";
import { storeDialog } from "./store_dialog.js";
import { Player, RUN_COLOURS } from "./player.js";
import { bytes, concatenated } from "./arrays.js";
import { Recording } from "./recording.js";
import { INPUTS } from "./input_byte.js";
import { InputCanvas } from "./input_canvas.js";
import { changed, changeTo } from "./input_history.js";
import { InputRecorder } from "./input_recorder.js";
import { SearchPanel } from "./input_search_panel.js";
import { BREAKPOINT, fromText, toText } from "./input_text.js";
import { StateTable } from "./state_table.js";

const MOST_UNDONE = 300;
const BLANK = 60; // frames of a new branch
const ACTIONS = ["stand", "left", "right", "jump", "jump left", "jump right"];
const ACTION_BYTES = [0, 4, 2, 1, 5, 3]; // input byte of each action
const PREVIEW_FRAMES = 60; // for which each action is held
const KEYS =
  "1 2 3: left, jump, right · insert, delete · arrows: cursor, with shift: select · " +
  "ctrl+Z Y: undo, redo · ctrl+C X V · F: try all actions · B: branch · M: marker · [ ]: marker before, next";

/** The view; see app.js.  #/inputs/ID edits the stored branches of a level; #/inputs/ID/runs/3 adds that run as
 *  one. */
export async function show(root, studio, id, kind, number) {
  if (!id) {
    studio.go("#/levels");
    return undefined;
  }
  const [level, run, branches] = await Promise.all([
    loadLevel(id),
    kind ? findRun(`${kind}/${number}`) : null,
    storedBranches(id),
  ]);
  const view = new InputEditor(root, studio, level, branches);
  if (run) view.add(run.label || "run", bytes(run.inputs));
  else if (view.branches.length) view.choose(view.branches.length - 1);
  else view.add("branch 1", new Uint8Array(BLANK));
  if (kind) history.replaceState(null, "", `#/inputs/${id}`); // so that a reload does not add the run again
  return () => view.destroy();
}

class InputEditor {
  /** @type {StateTable} */
  states;
  /** @type {SearchPanel} */
  search;

  constructor(root, studio, level, branches) {
    this.studio = studio;
    this.level = level;
    this.branches = branches;
    this.cursor = 0;
    this.selection = null;
    this.anchor = 0;
    this.clipboard = new Uint8Array();
    this.actionPreview = null;
    this.compared = null;
    this.work = new AbortController(); // ends the planner's search
    this.build(root);
    this.canvas = new InputCanvas(this.place, {
      paint: (lane, from, to, down) => this.paint(INPUTS[lane].bit, from, to, down),
      select: (from, to) => this.select(from, to),
      move: (by) => this.move(by),
      seek: (frame) => {
        this.selection = null;
        this.go(frame);
        this.anchor = this.cursor;
      },
    });
    this.canvas.canvas.addEventListener("keydown", (event) => this.key(event));
    this.run = new Recording(level);
    this.player = new Player(this.stage, { level, runs: [this.run] });
    this.player.overlay = (at) => this.overlay(at);
    this.player.canvas.addEventListener("click", (event) => {
      if (this.search.goal !== "point") return;
      this.search.setPoint(this.player.scene.toLevel(event.offsetX, event.offsetY));
      this.player.seek(this.player.frame);
    });
    this.canvas.canvas.focus({ preventScroll: true });
  }

  destroy() {
    this.work.abort();
    this.recorder?.destroy();
    this.search.destroy();
    this.player.destroy();
    this.canvas.destroy();
  }

  get branch() {
    return this.branches[this.chosen];
  }

  // -------------------------------------------------------------------------------------------------------------------
  // The run

  /** Replay the branch from its first change. */
  sync() {
    this.store();
    const { inputs } = this.branch;
    const frame = firstDifference(this.run.inputs, inputs);
    const began = performance.now();
    try {
      this.run.edit(frame, inputs.subarray(frame));
      this.took = performance.now() - began;
      this.actionPreview = null;
      this.player.frame = this.cursor; // update() draws it
      this.player.update(0);
    } catch (error) {
      this.studio.failed(error);
    }
    this.go(this.cursor);
  }

  /** Give the branch other inputs and markers; undo returns to the present ones, or (merged) to those before the last
   *  change. */
  change(inputs, markers = this.branch.markers, merged = false) {
    const { branch } = this;
    const isSame = same(branch.inputs, inputs);
    if (isSame && markers === branch.markers) return;
    const before = merged ? this.at(branch.undo.pop()) : branch;
    branch.undo = [...branch.undo, stepTo(inputs, before)].slice(-MOST_UNDONE);
    branch.redo = [];
    [branch.inputs, branch.markers] = [inputs, markers];
    if (isSame) {
      this.store();
      this.refresh();
    } else this.sync();
  }

  /** Return {inputs, markers} to which a step of the history leads. */
  at({ change, markers }) {
    return { inputs: changed(this.branch.inputs, change), markers };
  }

  /** Step back or forward in the history.  from, to: "undo" and "redo", or the reverse. */
  history(from, to) {
    const { branch } = this;
    if (!branch[from].length) return;
    const { inputs, markers } = this.at(branch[from].pop());
    branch[to].push(stepTo(inputs, branch));
    [branch.inputs, branch.markers] = [inputs, markers];
    this.sync();
  }

  // -------------------------------------------------------------------------------------------------------------------
  // Changes of the inputs

  paint(bit, from, to, down) {
    const inputs = new Uint8Array(Math.max(this.branch.inputs.length, to + 1));
    inputs.set(this.branch.inputs);
    for (let f = from; f <= to; f++) inputs[f] = down ? inputs[f] | bit : inputs[f] & ~bit;
    this.cursor = this.anchor = from;
    this.change(inputs);
  }

  /** The selected frames, or the one at the cursor: [first, last]. */
  get range() {
    return this.selection ?? [this.cursor, this.cursor];
  }

  toggle(bit) {
    const [from, to] = this.range;
    this.paint(bit, from, to, !(this.branch.inputs[from] & bit));
  }

  /** Replace frames from..to - 1 by others; markers move with the frames after them. */
  splice(from, to, others) {
    const { inputs, markers } = this.branch;
    const by = others.length - (to - from);
    this.change(
      concatenated(Uint8Array, inputs.subarray(0, from), others, inputs.subarray(Math.min(to, inputs.length))),
      by === 0
        ? markers
        : markers.map(({ frame, note }) => ({ note, frame: frame < from ? frame : Math.max(frame + by, from) })),
    );
  }

  insert() {
    const [from, to] = this.range;
    this.splice(from, from, new Uint8Array(to - from + 1));
  }

  remove() {
    const [from, to] = this.range;
    this.selection = null;
    this.splice(from, to + 1, new Uint8Array());
  }

  copy() {
    const [from, to] = this.range;
    this.clipboard = this.branch.inputs.slice(from, to + 1);
  }

  /** Move the selected frames later or earlier. */
  move(by) {
    const [from, to] = this.selection;
    const { inputs } = this.branch;
    const rest = concatenated(Uint8Array, inputs.subarray(0, from), inputs.subarray(to + 1));
    const at = Math.min(Math.max(from + by, 0), rest.length);
    this.selection = [at, at + to - from];
    this.cursor = at;
    this.change(concatenated(Uint8Array, rest.subarray(0, at), inputs.subarray(from, to + 1), rest.subarray(at)));
  }

  select(from, to) {
    this.selection = [from, Math.min(to, Math.max(this.branch.inputs.length - 1, from))];
    [this.anchor, this.cursor] = [from, from];
    this.go(from);
  }

  /** Move the cursor to a frame and show it. */
  go(frame) {
    this.cursor = Math.min(Math.max(frame, 0), this.branch.inputs.length);
    this.player.pause();
    if (this.player.frame !== this.cursor) this.player.seek(this.cursor);
    this.canvas.reveal(this.cursor);
    this.refresh();
  }

  // -------------------------------------------------------------------------------------------------------------------
  // Branches, continuations, comparison

  add(name, inputs, markers = []) {
    this.branches.push({ name, inputs, markers, undo: [], redo: [] });
    this.choose(this.branches.length - 1);
  }

  choose(index) {
    this.chosen = index;
    if (this.compared === index) this.compare(null);
    this.selection = null;
    this.list();
    this.sync();
  }

  async proceed(request, button) {
    const frame = Math.min(this.cursor, this.run.frames);
    const { inputs } = this.branch;
    button.disabled = true;
    this.status.textContent = "plays on from here …";
    const stopPolling = whileCompiling((words) => (this.status.textContent = words));
    try {
      const before = inputs.subarray(0, frame);
      const answer = await (request.agent ? this.playedFrom(before, request.agent) : this.plannedFrom(before));
      this.add(`${answer.name} from ${frame}`, concatenated(Uint8Array, before, answer.inputs));
    } catch (error) {
      if (!this.work.signal.aborted) this.studio.failed(error);
    } finally {
      stopPolling();
      button.disabled = false;
      this.refresh();
    }
  }

  /** Let an agent continue after some inputs. */
  async playedFrom(before, agent) {
    if (this.run.outcome !== "running" && before.length >= this.run.frames)
      throw new Error("the run has ended there; give an earlier frame");
    const inputs = await continued(agent, levelOf(this.level), before, this.work.signal);
    return { inputs, name: agent.name };
  }

  /** Let the planner continue after some inputs. */
  async plannedFrom(inputs) {
    const found = await search({ level: levelOf(this.level), inputs }, { signal: this.work.signal });
    if (found.state !== "found") throw new Error("the planner finds no run from here");
    return { inputs: found.inputs, name: "planner" };
  }

  /** Show where each of the six actions leads from the cursor. */
  showActionPreview() {
    const frame = Math.min(this.cursor, this.run.frames);
    this.actionPreview = { frame, branches: this.run.preview(frame, ACTION_BYTES, PREVIEW_FRAMES) };
    this.player.seek(frame);
  }

  overlay(frame) {
    const { goal, point } = this.search;
    const showPoint = (pen) => goal === "point" && pen.ring(point, 8, 1.6, pen.colours.blue);
    const preview = this.actionPreview;
    if (!preview || preview.frame !== frame) return { over: showPoint };
    const { branches } = preview;
    return {
      over: (pen) => {
        showPoint(pen);
        branches.forEach(({ points, outcome }, i) => {
          pen.line(points, RUN_COLOURS[i], 1.6);
          pen.disc(
            points[points.length - 1],
            3,
            { won: pen.colours.green, died: pen.colours.red }[outcome] ?? RUN_COLOURS[i],
          );
        });
        this.player.scene.drawLabels(
          pen,
          branches.map(({ points }, i) => ({
            at: points[points.length - 1],
            label: ACTIONS[i],
            colour: RUN_COLOURS[i],
          })),
        );
      },
    };
  }

  /** Show a gain of the search as a branch: a new one for the first gain, which later gains replace. */
  showGain(inputs, label, isFirst) {
    if (isFirst) this.branches.push({ name: label, inputs, markers: this.branch.markers, undo: [], redo: [] });
    else Object.assign(this.branches.at(-1), { name: label, inputs });
    this.list();
    this.store();
    this.compare(this.branches.length - 1);
  }

  compare(index) {
    if (this.player.runs.length > 1) this.player.drop();
    this.compared = index;
    if (index !== null) {
      const { inputs, name } = this.branches[index];
      this.player.add(new Recording(this.level, { label: name, inputs }));
    }
    this.refresh();
  }

  store() {
    putBranches(this.level.id, this.branches).catch(this.studio.failed);
  }

  // -------------------------------------------------------------------------------------------------------------------
  // The page

  key(event) {
    if (this.recorder) return;
    const control = event.ctrlKey || event.metaKey;
    const step = (by) => {
      if (event.shiftKey) {
        const at = Math.min(Math.max(this.cursor + by, 0), Math.max(this.branch.inputs.length - 1, 0));
        this.selection = [Math.min(this.anchor, at), Math.max(this.anchor, at)];
        this.go(at);
      } else {
        this.selection = null;
        this.go(this.cursor + by);
        this.anchor = this.cursor;
      }
    };
    const plain = {
      ArrowLeft: () => step(-1),
      ArrowRight: () => step(1),
      PageUp: () => step(-60),
      PageDown: () => step(60),
      Home: () => step(-Infinity),
      End: () => step(this.branch.inputs.length),
      Insert: () => this.insert(),
      Delete: () => this.remove(),
      f: () => this.showActionPreview(),
      b: () => this.fork(),
      m: () => this.note.focus(),
      "[": () => this.goToMarker(-1),
      "]": () => this.goToMarker(1),
      "+": () => this.canvas.zoom(1.25),
      "-": () => this.canvas.zoom(0.8),
      ...Object.fromEntries(INPUTS.map(({ bit }, i) => [i + 1, () => this.toggle(bit)])),
    };
    const controlled = {
      z: () => (event.shiftKey ? this.history("redo", "undo") : this.history("undo", "redo")),
      y: () => this.history("redo", "undo"),
      c: () => this.copy(),
      x: () => {
        this.copy();
        this.remove();
      },
      v: () => this.splice(this.cursor, this.cursor, this.clipboard),
    };
    const act = (control ? controlled : plain)[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!act || event.altKey) return;
    event.preventDefault();
    act();
  }

  fork() {
    this.add(`branch ${this.branches.length + 1}`, this.branch.inputs.slice(), this.branch.markers);
  }

  // -------------------------------------------------------------------------------------------------------------------
  // Markers, text, recording

  /** Write a note on the frame of the cursor; "" removes its marker. */
  mark(note) {
    const others = this.branch.markers.filter(({ frame }) => frame !== this.cursor);
    const markers = note ? [...others, { frame: this.cursor, note }] : others;
    this.change(this.branch.inputs, markers.sort((a, b) => a.frame - b.frame));
  }

  /** Move the cursor to the next marker (by = 1) or the one before (by = -1). */
  goToMarker(by) {
    const frames = this.branch.markers.map(({ frame }) => frame);
    const next = by > 0 ? frames.find((f) => f > this.cursor) : frames.findLast((f) => f < this.cursor);
    if (next !== undefined) this.go(next);
  }

  /** Take over the text of the branch, while it is typed; all changes until the field is left are one step of the
   *  history. */
  readText() {
    try {
      const { inputs, markers } = fromText(this.text.value);
      this.change(inputs, markers, this.typing && this.branch.undo.length > 0);
      this.typing = true;
      this.textStatus.textContent = "";
    } catch (error) {
      this.textStatus.textContent = error.message;
    }
  }

  /** Start or stop recording into the roll. */
  record() {
    if (this.recorder) {
      this.recorder.stop();
      return;
    }
    const begin = Math.min(this.cursor, this.run.frames);
    const old = this.branch.inputs;
    const play = (inputs) => {
      this.run.play(inputs);
      this.player.update(0);
      this.player.seek(this.run.frames);
      return this.run.outcome === "running";
    };
    this.run.rewind(begin);
    play([]);
    this.recordButton.setAttribute("aria-pressed", "true");
    this.status.textContent = "Recording begins with your first key; escape ends it.";
    this.recorder = new InputRecorder(play, (recorded) => {
      this.recorder = null;
      this.recordButton.setAttribute("aria-pressed", "false");
      this.cursor = begin + recorded.length;
      const after = old.subarray(Math.min(begin + recorded.length, old.length));
      this.change(concatenated(Uint8Array, old.subarray(0, begin), recorded, after));
      this.sync();
      this.canvas.canvas.focus();
    });
  }

  refresh() {
    const { run, branch } = this;
    this.player.rename(0, branch.name);
    this.canvas.show({
      inputs: branch.inputs,
      cursor: this.cursor,
      selection: this.selection,
      played: run.frames,
      ended: run.outcome !== "running",
      markers: branch.markers,
    });
    this.player.stops = branch.markers.filter(({ note }) => note === BREAKPOINT).map(({ frame }) => frame);
    this.states.show(this.run, Math.min(this.cursor, run.frames), branch.markers);
    if (document.activeElement !== this.text) this.text.value = toText(branch.inputs, branch.markers);
    this.note.value = branch.markers.find(({ frame }) => frame === this.cursor)?.note ?? "";
    this.undo.disabled = !branch.undo.length;
    this.redo.disabled = !branch.redo.length;
    const took = this.took === undefined ? "" : ` · replayed in ${Math.round(this.took)} ms`;
    const outcome = run.outcome === "running" ? "not finished" : run.outcome;
    const duration = `${run.frames} (${seconds(run.frames)})`;
    this.status.textContent = `frame ${this.cursor} of ${branch.inputs.length} · ${outcome} after ${duration}${took}`;
  }

  list() {
    const row = (branch, index) => {
      const name = element("input", {
        type: "text",
        value: branch.name,
        maxlength: 100,
        "aria-label": `Name of branch ${index + 1}`,
        onchange: () => {
          branch.name = name.value;
          this.store();
        },
      });
      const choose = element("input", {
        type: "radio",
        name: "branch",
        checked: index === this.chosen,
        "aria-label": `Edit ${branch.name}`,
        onchange: () => this.choose(index),
      });
      const compare = element("input", {
        type: "checkbox",
        checked: index === this.compared,
        disabled: index === this.chosen,
        "aria-label": `Compare with ${branch.name}`,
        title: "show beside the edited branch",
        onchange: () => {
          this.compare(compare.checked ? index : null);
          this.list();
        },
      });
      const drop = actionButton(
        "×",
        async () => {
          if (!(await confirmed("Remove this branch?", `“${branch.name}” is removed.`, "Remove"))) return;
          this.branches.splice(this.branches.indexOf(branch), 1);
          this.compare(null);
          this.choose(Math.min(this.chosen - (index < this.chosen ? 1 : 0), this.branches.length - 1));
        },
        { class: "quiet icon", "aria-label": `Remove ${branch.name}`, disabled: this.branches.length < 2 },
      );
      const compares = element("label", { class: "small muted" }, compare, "compare");
      return div("branch", choose, name, compares, drop);
    };
    this.rows.replaceChildren(...this.branches.map(row));
  }

  build(root) {
    const button = (words, title, act) =>
      actionButton(
        words,
        (event) => {
          act(event.currentTarget);
          this.canvas.canvas.focus();
        },
        { title },
      );
    this.stage = element("div");
    this.place = div("input-lanes");
    this.status = element("p", { class: "small", role: "status", id: "inputs-status" });
    this.rows = element("div");
    this.states = new StateTable((frame) => {
      this.selection = null;
      this.go(frame);
      this.canvas.canvas.focus();
    });
    this.note = element("input", {
      type: "text",
      maxlength: 100,
      placeholder: "a note, or *** for a breakpoint",
      "aria-label": "Marker of this frame",
      onchange: () => this.mark(this.note.value.replace(/[#\n]/g, " ").trim()),
      onkeydown: (event) => event.key === "Enter" && this.canvas.canvas.focus(),
    });
    this.text = element("textarea", {
      rows: 10,
      spellcheck: false,
      "aria-label": "Inputs as text",
      oninput: () => this.readText(),
      onblur: () => {
        this.typing = false;
        this.refresh();
      },
    });
    this.textStatus = element("p", { class: "small bad", role: "status" });
    this.search = new SearchPanel({
      level: this.level,
      inputs: () => this.branch.inputs,
      range: () => this.range,
      gain: (inputs, label, isFirst) => this.showGain(inputs, label, isFirst),
      failed: this.studio.failed,
    });
    this.recordButton = actionButton(
      "Record while playing",
      (event) => {
        event.currentTarget.blur();
        this.record();
      },
      { title: "play on from the cursor with the keys of the game; the frames after it are replaced" },
    );
    this.undo = button("Undo", "ctrl+Z", () => this.history("undo", "redo"));
    this.redo = button("Redo", "ctrl+Y", () => this.history("redo", "undo"));
    const loadAgents = async (made) => {
      // only on demand, since it takes seconds and memory
      const { agents, why_none: whyNone } = await get("agents");
      if (!agents.length) this.studio.toast(whyNone);
      made.replaceWith(
        ...agents.map((agent) =>
          button(agent.name, `let ${agent.name} play on from the cursor`, (chosen) => this.proceed({ agent }, chosen)),
        ),
      );
    };
    root.replaceChildren(
      div(
        "split inputs",
        div("field", this.stage, this.place, this.status, this.states.root),
        div(
          "panels",
          panel(
            null,
            element("h1", { text: this.level.name }),
            div(
              "bar",
              this.undo,
              this.redo,
              button("Insert", "insert frames without keys", () => this.insert()),
              button("Delete", "delete the selected frames", () => this.remove()),
              ...INPUTS.map(({ action, bit }) => button(action, `toggle ${action}`, () => this.toggle(bit))),
            ),
            element("p", { class: "small muted", text: KEYS }),
          ),
          panel("Branches", this.rows, div("bar", button("Branch from this", "B", () => this.fork()))),
          panel(
            "From the cursor",
            div(
              "bar",
              this.recordButton,
              button("Try all six actions", "F", () => this.showActionPreview()),
              button("Let the planner continue", "search for a run from here", (made) => this.proceed({}, made)),
              button("Agents …", "let an agent play on from here", (made) =>
                loadAgents(made).catch(this.studio.failed),
              ),
            ),
          ),
          this.search.panel,
          panel("Marker", this.note),
          panel(
            "Text",
            element("p", {
              class: "small muted",
              text: "frames,keys: L, R, J, S (self-destruct) · # note · *** stop",
            }),
            this.text,
            this.textStatus,
          ),
          panel(
            "Export",
            div(
              "bar",
              button("Store run …", "store, then download as replay or attract file", () => storeDialog(this.run)),
              linkButton("Play", `#/play/${this.level.id}`),
            ),
          ),
        ),
      ),
    );
  }
}

/** Return the step of the history that leads from inputs to a branch as it was. */
function stepTo(inputs, { inputs: before, markers }) {
  return { change: changeTo(inputs, before), markers };
}

/** Return the first place at which two arrays differ; the length of the shorter one if there is none. */
function firstDifference(a, b) {
  const common = Math.min(a.length, b.length);
  for (let i = 0; i < common; i++) if (a[i] !== b[i]) return i;
  return common;
}

function same(a, b) {
  return a.length === b.length && firstDifference(a, b) === a.length;
}
