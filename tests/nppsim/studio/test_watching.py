"""The watch socket, with an agent that always presses right."""

import base64
import json
from pathlib import Path

import anyio
import numpy as np
import pytest

import nppsim
from nppsim.batch import BatchSimulator
from nppsim.physics.outcomes import NAMES
from nppsim.reward import TERMS
from nppsim.studio import watching, writers
from nppsim.studio.agent_registry import AgentRegistry
from nppsim.studio.agents import AgentError, Decision, EpisodeEnd, PagePolicy
from nppsim.studio.errors import StudioError

from worlds import RIGHT, moving_level, straight

LIMIT_S = 60
SEEN = ("game_state", "surroundings", "player_frame")


class Presser:
    """An agent that always goes right; counts its episodes that began and were closed."""

    name, frame_skip, observations = "presser", 4, SEEN

    def __init__(self):
        self.facts = {"idea": "right"}
        self.begun = self.closed = 0

    def play(self, level, *, seed=0, deterministic=False):
        self.begun += 1
        try:
            yield from self._decisions(level)
        finally:
            self.closed += 1

    def _decisions(self, level):
        sim = BatchSimulator([level], 1, observations=SEEN, threads=1)
        obs, frame, terms = sim.reset(), 0, np.zeros(len(TERMS))
        while True:
            seen = {key: values[0].copy() for key, values in obs.items()}
            obs = sim.step(np.array([RIGHT]))
            over = bool(sim.finished.size)
            now = int((sim.episode["frames"] if over else sim.state.ninja["frame"])[0])
            sums = (sim.episode["terms"] if over else sim.state.terms)[0].copy()
            yield Decision(
                seen=seen,
                probabilities=np.eye(6, dtype=np.float32)[RIGHT],
                value=1.5,
                entropy=0.0,
                action=RIGHT,
                inputs=np.full(now - frame, 2, np.uint8),
                terms=dict(zip(TERMS, (sums - terms).tolist(), strict=True)),
                outcome=NAMES[sim.episode["outcome"][0]] if over else None,
                note="sure",
            )
            if over:
                return
            frame, terms = now, sums

    def evaluate(self, levels, episodes, *, seed=0, deterministic=False):
        for place, level in enumerate(levels):
            run = nppsim.simulate(level, np.full(600, 2, np.uint8))
            for _ in range(episodes):
                yield EpisodeEnd(place, run.outcome, run.frames, *run.position[-1].tolist())


class Pressers:
    """The plug-in of such agents."""

    def __init__(self):
        self.agent = Presser()

    def page_policy(self, path):
        return PagePolicy({"size": "small"}, b"policy") if path.name == "small" else None

    def load_agent(self, path):
        if not path.is_file():
            raise AgentError(f"{path}: no such agent")
        return self.agent

    def shipped_agent(self):
        return None

    def read_experiment(self, folder):
        run = {"label": "presser", "seed": 1, "checkpoint": {"path": str(folder / "a"), "name": "a", "written": 0.0}}
        return {"name": folder.name, "finished": False, "written": 0.0, "log": [], "runs": [run]}


@pytest.fixture
def plugin():
    return Pressers()


@pytest.fixture
def watched(page, plugin, tmp_path):
    """A studio with such an agent."""
    (tmp_path / "a").touch()
    page.studio.registry = AgentRegistry([tmp_path / "a"], find=lambda: plugin)
    return page


def follow(socket, until):
    """Messages until one that has a key."""
    messages = [socket.receive_json()]
    while until not in messages[-1]:
        messages.append(socket.receive_json())
    return messages


def runs_of(messages):
    """{run: its parts} of messages."""
    parts = {}
    for message in messages:
        parts.setdefault(message.get("run"), []).extend(message.get("parts", []))
    return parts


COUNT = {"number": 6, "agent": "0", "level": straight().fingerprint, "category": None, "episodes": 1}
AGENT = {"agent": "0", "seed": 1, "deterministic": False}


def test_watch_agent_sends_each_decision(watched):
    with watched.socket("watch") as socket:
        socket.send_json({"watch": {"number": 5, "level": straight().fingerprint, "runs": [AGENT, {"replay": 0}]}})
        messages = follow(socket, "difference")
    assert {one["watch"] for one in messages} == {5}
    start = next(one for one in messages if one.get("run") == 0)
    assert (start["label"], start["facts"], start["start"]["all"]) == ("presser", {"idea": "right"}, True)
    assert start["layout"]["surroundings"] == {"shape": [3, 19, 19], "picture": True, "components": []}
    parts = runs_of(messages)[0]
    inputs = np.frombuffer(b"".join(base64.b64decode(part["inputs"]) for part in parts), np.uint8)
    run = nppsim.simulate(straight(), inputs)
    assert (run.outcome, run.frames) == (parts[-1]["outcome"], parts[-1]["frames"]) == ("won", len(inputs))
    decision = parts[1]["decision"]
    assert (decision["f"], decision["a"], decision["note"]) == (4, RIGHT, "sure")
    assert (decision["p"][RIGHT], decision["v"], decision["h"]) == (1.0, 1.5, 0.0)
    assert len(base64.b64decode(decision["s"]["player_frame"])) == 84 * 84
    assert decision["s"]["game_state"][:2] == pytest.approx(run.position[3], abs=1e-3)
    assert parts[-1]["decision"]["r"]["win"] > 0
    assert messages[-1]["difference"]["positions_part"] is None  # the recording presses right, too


def test_path_lengths_sent_on_change(watched):
    with watched.socket("watch") as socket:
        socket.send_json({"watch": {"number": 5, "level": straight().fingerprint, "runs": [AGENT]}})
        messages = follow(socket, "over")
        while not messages[-1]["over"]:
            messages += follow(socket, "over")
    lengths = [(part["decision"]["f"], part["paths"]) for part in runs_of(messages)[0] if part["paths"]]
    assert len(lengths) == 2 and lengths[0][0] == 0  # to the switch, then to the exit
    field = np.frombuffer(base64.b64decode(lengths[0][1]), "<u2").reshape(89, 51)
    x, y = (round(v / 12) for v in straight().spawn)
    bank = nppsim.BatchSimulator([straight()], 1).bank
    assert field[x, y] * 1.2 == pytest.approx(bank.path_length[0], abs=20)


def test_episode_waits_for_page_and_ends_with_socket(watched, plugin, monkeypatch):
    monkeypatch.setattr(watching, "AHEAD", 10)
    monkeypatch.setattr(watching, "PART", 4)
    with watched.client:
        with watched.socket("watch") as socket:
            socket.send_json({"watch": {"number": 5, "level": straight().fingerprint, "runs": [AGENT]}})
            frames = [follow(socket, "parts")[-1]["parts"][-1]["frames"] for _ in range(3)]
            assert frames == [4, 8, 12]  # and no further
            socket.send_json({"at": 4})
            assert follow(socket, "parts")[-1]["parts"][-1]["frames"] == 16
            assert plugin.agent.closed == 0
        _until(lambda: plugin.agent.closed == 1 and not watched.studio.watchers)


def test_new_request_cancels_previous(watched, plugin):
    with watched.client, watched.socket("watch") as socket:
        for _ in range(3):
            socket.send_json({"watch": {"number": 5, "level": moving_level().fingerprint, "runs": [AGENT]}})
            follow(socket, "parts")
        _until(lambda: plugin.agent.closed >= plugin.agent.begun - 1)


def test_deaths_counted_on_level_and_category(watched):
    with watched.socket("watch") as socket:
        for place in ({"level": straight().fingerprint, "category": None}, {"level": None, "category": "simple"}):
            socket.send_json({"deaths": {"number": 6, "agent": "0", **place, "episodes": 70}})
            messages = follow(socket, "counted")
            assert messages[0] == {"deaths": 6, "levels": [straight().fingerprint], "episodes": 70}
            endings = [one for message in messages for one in message.get("endings", [])]
            assert len(endings) == messages[-1]["counted"] == 70
            assert {(level, outcome) for level, outcome, *_ in endings} == {(0, "won")}
        socket.send_json({"deaths": {"number": 6, "agent": "0", "level": None, "category": "none", "episodes": 1}})
        assert "no levels of the category" in socket.receive_json()["error"]


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("no JSON", "not JSON"),
        ({"dance": 1}, "one of watch, at, deaths, stop"),
        ({"at": 1, "stop": "watch"}, "one of watch"),
        ({"watch": {"number": 5, "level": "a", "runs": []}}, "1 to 6 runs"),
        ({"watch": {"number": 5, "level": "a", "runs": [{"replay": "0"}]}}, "watch.runs"),
        ({"watch": {"number": 5, "level": "a", "runs": [AGENT | {"seed": -1}]}}, "a seed"),
        ({"watch": {"number": 5, "level": "a", "runs": [AGENT]}}, "no such level"),
        (
            {"deaths": {"number": 6, "agent": "0", "level": "a", "category": "b", "episodes": 1}},
            "either a level or a category",
        ),
        ({"deaths": COUNT | {"episodes": 10**9}}, "1 to 4,000"),
        (
            {"deaths": {"number": 6, "agent": "7", "level": straight().fingerprint, "category": None, "episodes": 1}},
            "no agent '7'",
        ),
        ({"stop": "everything"}, "watch or deaths"),
    ],
)
def test_invalid_request_returns_error(watched, message, expected):
    with watched.socket("watch") as socket:
        socket.send_text(message if isinstance(message, str) else json.dumps(message))
        assert expected in socket.receive_json()["error"]


def test_one_failing_run_leaves_others(watched):
    with watched.socket("watch") as socket:
        runs = [{"replay": 0}, AGENT | {"agent": "9"}, {"recording": 3}]
        socket.send_json({"watch": {"number": 5, "level": straight().fingerprint, "runs": runs}})
        messages = [socket.receive_json() for _ in range(4)]
    assert {one["run"] for one in messages if "error" in one} == {1, 2}
    assert next(one for one in messages if "over" in one)["over"] == "won"


def test_stored_run_shown_beside_others(watched, winning):
    watched.studio.recordings.store(straight(), winning.inputs, "won", "mine", None, 0)
    number = watched.get("recordings").json()["recordings"][0]["number"]
    with watched.socket("watch") as socket:
        runs = [{"recording": number}, {"replay": 0}]
        socket.send_json({"watch": {"number": 5, "level": straight().fingerprint, "runs": runs}})
        messages = follow(socket, "difference")
    assert {one["label"] for one in messages if "label" in one} == {"mine", "won"}
    assert messages[-1]["difference"]["total"] == 0


def test_runs_with_inputs_of_the_page_are_shown(watched, winning):
    run = {"label": "planner", "inputs": base64.b64encode(winning.inputs.tobytes()).decode()}
    with watched.client, watched.socket("watch") as socket:
        socket.send_json({"watch": {"number": 5, "level": straight().fingerprint, "runs": [run, run]}})
        messages = follow(socket, "difference")
        assert {one["label"] for one in messages if "label" in one} == {"planner"}
        assert sorted(one["run"] for one in messages if one.get("over") == "won") == [0, 1]
        wrong = run | {"inputs": "?"}
        socket.send_json({"watch": {"number": 6, "level": straight().fingerprint, "runs": [wrong]}})
        assert "base64" in follow(socket, "error")[-1]["error"]


def test_too_long_run_is_reported(watched, monkeypatch):
    monkeypatch.setattr(writers, "MAX_CHANGES", -1)
    with watched.socket("watch") as socket:
        socket.send_json({"watch": {"number": 5, "level": straight().fingerprint, "runs": [{"replay": 0}]}})
        assert "too many entities move in this run" in follow(socket, "error")[-1]["error"]


def test_agents_with_same_file_name_show_folder(page, plugin, tmp_path):
    files = [tmp_path / folder / "a" for folder in ("old", "new")]
    for file in files:
        file.parent.mkdir()
        file.touch()
    cards = AgentRegistry(files, find=lambda: plugin).agents()["agents"]
    assert [card["name"] for card in cards] == ["old/a", "new/a"]


def test_experiment_agent_id_is_stable(plugin, tmp_path):
    def expected(label):
        return {"label": label, "seed": 1, "checkpoint": {"path": str(tmp_path / label), "name": label, "written": 0.0}}

    runs, loaded = [expected("later")], []
    (tmp_path / "later").touch()
    plugin.read_experiment = lambda folder: {"name": "x", "runs": [dict(run) for run in runs]}
    plugin.load_agent = lambda path: loaded.append(path.name)
    registry = AgentRegistry(experiment=tmp_path, find=lambda: plugin)
    id = registry.experiment()["runs"][0]["agent"]
    runs.insert(0, expected("earlier"))
    registry.agent(id)
    assert loaded == ["later"]
    with pytest.raises(StudioError, match="no agent 'run other, seed 1' here"):
        registry.agent("run other, seed 1")


def test_agents_listed_or_reason(watched, page):
    assert page.get("agents").json() == {
        "agents": [{"id": "0", "name": "a", "facts": {"idea": "right"}, "in_page": False}],
        "why_none": None,
    }
    page.studio.registry = AgentRegistry(find=lambda: None)
    assert "--agent" in page.get("agents").json()["why_none"]


def test_agents_policy_for_page_is_read_without_loading_agent(page, plugin, tmp_path):
    (tmp_path / "small").touch()
    (tmp_path / "a").touch()
    page.studio.registry = AgentRegistry([tmp_path / "small", tmp_path / "a"], find=lambda: plugin)
    small, other = page.get("agents").json()["agents"]
    assert (small["in_page"], small["facts"], other["in_page"]) == (True, {"size": "small"}, False)
    assert page.get("agents/0/policy").content == b"policy"
    assert "cannot play" in page.get("agents/1/policy", 404).json()["error"]


def test_experiment_followed_without_paths(watched, plugin, tmp_path):
    assert watched.get("experiment").json() is None
    assert not watched.get("state").json()["follows"]
    watched.studio.registry = AgentRegistry(experiment=tmp_path, find=lambda: plugin)
    assert watched.get("state").json()["follows"]
    expected = watched.get("experiment").json()
    assert expected["runs"][0]["checkpoint"] == {"name": "a", "written": 0.0}
    assert str(tmp_path) not in json.dumps(expected)
    assert watched.studio.registry.agent(expected["runs"][0]["agent"]) is plugin.agent


def test_given_agents_checked_at_start(plugin):
    with pytest.raises(AgentError, match="nowhere: no such agent"):
        AgentRegistry(["nowhere"], find=lambda: plugin).check()
    with pytest.raises(AgentError, match="install"):
        AgentRegistry([Path("nowhere")], find=lambda: None).check()
    AgentRegistry(find=lambda: None).check()


def _until(condition):
    async def wait():
        with anyio.fail_after(LIMIT_S):
            while not condition():
                await anyio.sleep(0.01)

    anyio.run(wait)
