/* Checks of the edited level by the server: diagnostics, the planner's search, and episodes of an agent. */

import { Socket, get, whileCompiling } from "./api.js";
import { element, seconds } from "./elements.js";
import { draftOf } from "./level_model.js";

const PAUSE_MS = 500; // time without a change after which the level is checked
const SEARCHES = {
  starting: "The planner is starting …",
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
  const button = element("button", {
    type: "button",
    text: "64 episodes of an agent",
    onclick: () =>
      evaluateAgent().catch((error) => {
        status.textContent = "";
        studio.failed(error);
      }),
  });
  panel.append(
    element("h2", { text: "Check" }),
    verdict,
    list,
    element("div", { class: "bar" }, choice, button, status),
  );
  let stopPolling = () => {}; // ends messages on compilation
  const checks = new Checks({
    found(diagnostics) {
      list.replaceChildren(
        ...diagnostics.map((one) => element("li", { class: one.severity }, sentence(one, editor, canvas))),
      );
      stopPolling();
      canvas.show({
        marks: diagnostics.filter(({ severity, at }) => at && severity !== "note").map(({ at }) => at),
        route: null,
      });
      if (diagnostics.some(({ severity }) => severity === "error")) showVerdict("Not a level yet.", "bad");
      else showVerdict("Checking …", "muted");
    },
    searched(search) {
      stopPolling();
      if (search.state === "starting") stopPolling = whileCompiling((text) => showVerdict(text, "muted"));
      if (search.state === "found") {
        canvas.show({ route: search.route });
        showVerdict(`Finishable: the planner needs ${seconds(search.par)} (${search.par} frames).`, "good");
      } else {
        showVerdict(
          search.why ?? SEARCHES[search.state],
          ["starting", "searching"].includes(search.state) ? "muted" : "warn",
        );
      }
    },
    failed(message) {
      stopPolling();
      status.textContent = "";
      showVerdict(message, "bad");
    },
    evaluated: (result) => showEvaluation(result),
  });

  function showVerdict(text, kind) {
    verdict.textContent = text;
    verdict.className = kind;
  }

  function showEvaluation({ wins, episodes, of }) {
    const share = Math.round((100 * wins) / episodes);
    status.textContent = `${wins} of ${episodes}${episodes < of ? " so far" : ""} finished (${share} %)`;
  }

  // Load the agents only on demand, since it takes seconds.
  async function evaluateAgent() {
    if (!choice.options.length) {
      status.textContent = "Loading the agents …";
      const { agents, why_none: why } = await get("agents");
      choice.replaceChildren(...agents.map(({ id, name }) => element("option", { value: id, text: name })));
      choice.hidden = agents.length < 2;
      if (why) status.textContent = why;
    }
    if (!choice.options.length) return;
    status.textContent = `${choice.selectedOptions[0].text} plays …`;
    checks.evaluate(editor.state, choice.value);
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
    stopPolling();
    checks.close();
  };
}

// The text of a diagnostic; for a diagnostic with a position, a button that moves the cursor there.
function sentence({ text, at }, editor, canvas) {
  if (!at) return text;
  return element("button", {
    type: "button",
    class: "quiet",
    text,
    onclick: () => {
      editor.choose("select");
      editor.goTo(at);
      canvas.follow();
      canvas.canvas.focus();
    },
  });
}

/* Sends the latest level to the server when the author pauses, and ignores answers about earlier levels. */
class Checks {
  constructor(listener) {
    this.listener = listener;
    this.number = 0;
    this.timer = 0;
    this.socket = null;
  }

  later(state, pause = PAUSE_MS) {
    clearTimeout(this.timer);
    this.number += 1; // answers to earlier messages are ignored from now on
    this.timer = setTimeout(() => this.#send({ check: draftOf(state) }), pause);
  }

  evaluate(state, agent) {
    this.#send({ evaluate: draftOf(state), agent });
  }

  #send(message) {
    const { number } = this;
    if (!this.socket || this.ended) {
      this.ended = false;
      this.socket = new Socket("edit");
      this.socket.onmessage = (answer) => this.#receive(answer);
      this.socket.onclose = (error) => {
        this.ended = true;
        this.listener.failed(error.message);
      };
    }
    this.socket.send({ ...message, number });
  }

  #receive({ number, diagnostics, search, evaluated, error }) {
    if (number !== this.number) return;
    if (error) this.listener.failed(error);
    if (diagnostics) this.listener.found(diagnostics);
    if (search) this.listener.searched(search);
    if (evaluated) this.listener.evaluated(evaluated);
  }

  close() {
    clearTimeout(this.timer);
    this.number = -1;
    this.socket?.close();
  }
}
