/* Checks of the edited level: diagnostics, the planner's search, and episodes of an agent. */

import { levelFromDraft } from "../../../wasm/level.js";
import { play } from "./agents.js";
import { get } from "./api.js";
import { seconds } from "./clock.js";
import { actionButton, div, element } from "./elements.js";
import { diagnostics } from "./level_checks.js";
import { draftOf } from "./level_model.js";
import { search } from "./planner.js";

const PAUSE_MS = 500; // time without a change after which the level is checked
const EPISODES = 64; // that an agent plays
const SEARCHES = {
  searching: "The planner is looking for a run …",
  barred: "It cannot be finished in this state.",
  none: "Unknown: the planner has found no run. A person still may.",
  timeout: "Unknown: the planner has found no run within its time limit. A person still may.",
};

/** Fill a panel with the results of the checks and mark them on the canvas; return a function that ends the checks. */
export function showChecks(panel, editor, canvas, studio) {
  const verdict = element("p", { id: "editor-verdict", role: "status" });
  const list = element("ul", { class: "diagnostics", id: "editor-diagnostics" });
  const choice = element("select", { "aria-label": "Agent", hidden: true });
  const status = element("span", { class: "small", id: "editor-episodes", role: "status" });
  const button = actionButton("64 episodes of an agent", () =>
    evaluateAgent().catch((error) => {
      status.textContent = "";
      studio.failed(error);
    }),
  );
  panel.append(element("h2", { text: "Check" }), verdict, list, div("bar", choice, button, status));
  const checks = new Checks({
    found(found) {
      list.replaceChildren(
        ...found.map((one) => element("li", { class: one.severity }, sentence(one, editor, canvas))),
      );
      canvas.show({
        marks: found.filter(({ severity, at }) => at && severity !== "note").map(({ at }) => at),
        route: null,
      });
      if (found.some(({ severity }) => severity === "error")) showVerdict("Not a level yet.", "bad");
    },
    searched({ state, inputs, route }) {
      if (state === "found") {
        canvas.show({ route });
        showVerdict(`Finishable: the planner needs ${seconds(inputs.length)} (${inputs.length} frames).`, "good");
      } else {
        showVerdict(SEARCHES[state], state === "searching" ? "muted" : "warn");
      }
    },
    failed(message) {
      status.textContent = "";
      showVerdict(message, "bad");
    },
    evaluated: (result) => showEvaluation(result),
  });

  function showVerdict(words, kind) {
    verdict.textContent = words;
    verdict.className = kind;
  }

  function showEvaluation({ wins, episodes, of }) {
    const share = Math.round((100 * wins) / episodes);
    status.textContent = `${wins} of ${episodes}${episodes < of ? " so far" : ""} finished (${share} %)`;
  }

  let agents = [];

  // Load the agents only on demand, since it may take seconds.
  async function evaluateAgent() {
    if (!choice.options.length) {
      status.textContent = "Loading the agents …";
      const { agents: found, why_none: why } = await get("agents");
      agents = found;
      choice.replaceChildren(...agents.map(({ id, name }) => element("option", { value: id, text: name })));
      choice.hidden = agents.length < 2;
      if (why) status.textContent = why;
    }
    if (!choice.options.length) return;
    status.textContent = `${choice.selectedOptions[0].text} plays …`;
    await checks.evaluate(editor.state, agents.find(({ id }) => id === choice.value));
  }

  const change = () => {
    status.textContent = "";
    checks.later(editor.state);
  };
  showVerdict("Checking …", "muted");
  editor.history.addEventListener("change", change);
  checks.later(editor.state, 0);
  const back = () => checks.later(editor.state, 0);
  document.addEventListener("studioback", back);
  return () => {
    editor.history.removeEventListener("change", change);
    document.removeEventListener("studioback", back);
    checks.close();
  };
}

// The text of a diagnostic; for a diagnostic with a position, a button that moves the cursor there.
function sentence({ text: words, at }, editor, canvas) {
  if (!at) return words;
  return actionButton(
    words,
    () => {
      editor.choose("select");
      editor.goTo(at);
      canvas.follow();
      canvas.canvas.focus();
    },
    { class: "quiet" },
  );
}

/* Checks the latest level when the author pauses; a change ends the work on earlier ones. */
class Checks {
  constructor(listener) {
    this.listener = listener;
    this.timer = 0;
    this.work = new AbortController();
    this.playing = new AbortController();
  }

  later(state, pause = PAUSE_MS) {
    this.close();
    this.timer = setTimeout(() => this.#check(state), pause);
  }

  async #check(state) {
    const { signal } = this.work;
    const found = diagnostics(state);
    this.listener.found(found);
    if (found.some(({ severity }) => severity === "error")) return;
    this.listener.searched({ state: "searching" });
    try {
      const answer = await search({ level: levelFromDraft(draftOf(state)) }, { signal });
      if (answer.state === "barred") this.listener.found(diagnostics(state, false));
      this.listener.searched(answer);
    } catch (error) {
      if (!signal.aborted) this.listener.failed(error.message);
    }
  }

  /** Let an agent play the level; a new call or a change ends the earlier one. */
  async evaluate(state, agent) {
    this.playing.abort();
    this.playing = new AbortController();
    const { signal } = this.playing;
    const request = { levels: [levelFromDraft(draftOf(state))], episodes: EPISODES, endingsOnly: true };
    let [wins, episodes] = [0, 0];
    try {
      for await (const { ending } of play(agent, request, signal)) {
        if (!ending) continue;
        episodes += 1;
        if (ending[1] === "won") wins += 1;
        this.listener.evaluated({ wins, episodes, of: EPISODES });
      }
    } catch (error) {
      if (!signal.aborted) this.listener.failed(error.message);
    }
  }

  close() {
    clearTimeout(this.timer);
    this.work.abort();
    this.work = new AbortController();
    this.playing.abort();
  }
}
