"""Episodes on the server, with an agent that always presses right."""

import base64
import json
from pathlib import Path

import anyio
import numpy as np
import pytest
from anyio import CapacityLimiter

import nppsim
from nppsim.batch import BatchSimulator
from nppsim.physics.outcomes import NAMES
from nppsim.replays.ending import ending_of
from nppsim.reward import TERMS
from nppsim.studio.agent_registry import AgentRegistry
from nppsim.studio.agent_routes import _lines
from nppsim.studio.agents import AgentError, Decision, EpisodeEnd, PagePolicy
from nppsim.studio.errors import StudioError

from worlds import RIGHT, straight

SEEN = ("game_state", "surroundings", "player_frame")


class Presser:
    """An agent that always goes right; counts its episodes that began and were closed."""

    name, frame_skip, observations = "presser", 4, SEEN

    def __init__(self):
        self.facts = {"idea": "right"}
        self.begun = self.closed = 0

    def play(self, level, *, seed=0, deterministic=False, start=None, live=""):
        self.begun += 1
        try:
            yield from self._decisions(level, start)
        finally:
            self.closed += 1

    def _decisions(self, level, start):
        sim = BatchSimulator([level], 1, observations=SEEN, threads=1)
        obs, frame, terms = sim.reset(), 0, np.zeros(len(TERMS))
        if start is not None:
            start.put(sim, 0)
            obs, frame = sim.observe(), int(start.ninja["frame"])
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
                yield EpisodeEnd(place, run.outcome, run.frames, *run.position[-1].tolist(), share=1.0)


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

    def read_experiment(self, folder, trust_plugins):
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


def play(page, status=200, agent="0", **changes):
    """Messages of an agent that plays."""
    request = {"maps": [text(straight().to_bytes())], "episodes": 1, "seed": 1, "deterministic": False, "inputs": ""}
    content = json.dumps(request | {"endings_only": False, "live": ""} | changes)
    answer = page.client.post(f"/api/agents/{agent}/play", content=content, headers=page.headers)
    assert answer.status_code == status, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def text(data):
    return base64.b64encode(bytes(data)).decode()


def test_play_sends_layout_decisions_and_ending(watched, plugin):
    layout, *decided, ending = play(watched)
    assert layout["layout"]["surroundings"] == {"shape": [3, 19, 19], "picture": True, "components": []}
    decisions = [decision for message in decided for decision in message["decisions"]]
    inputs = np.frombuffer(b"".join(base64.b64decode(one["inputs"]) for one in decisions), np.uint8)
    run = nppsim.simulate(straight(), inputs)
    assert ending == {"ending": [0, "won", run.frames, *run.position[-1].tolist(), 1.0], "why": ""}
    assert run.outcome == decisions[-1]["outcome"] == "won"
    one = decisions[1]
    assert (one["f"], one["a"], one["note"]) == (4, RIGHT, "sure")
    assert (one["p"][RIGHT], one["v"], one["h"]) == (1.0, 1.5, 0.0)
    assert len(base64.b64decode(one["s"]["player_frame"])) == 84 * 84
    assert one["s"]["game_state"][:2] == pytest.approx(run.position[3], abs=1e-3)
    assert decisions[-1]["r"]["win"] > 0
    assert plugin.agent.closed == plugin.agent.begun == 1


def test_play_says_why_an_episode_is_lost(watched):
    level = straight(mine=True)
    *_, ending = play(watched, maps=[text(level.to_bytes())])
    run = nppsim.simulate(level, np.full(600, 2, np.uint8))
    expected = ending_of(level, np.full(run.frames, 2, np.uint8))
    assert ending == {"ending": [0, "died", run.frames, *expected.place, expected.share], "why": expected.text()}


def test_message_is_sent_before_the_next_is_computed():
    computed = []

    def documents():
        for number in range(3):
            computed.append(number)
            yield {"number": number}

    async def sent():
        return [(json.loads(line)["number"], len(computed)) async for line in _lines(documents(), CapacityLimiter(1))]

    assert anyio.run(sent) == [(0, 1), (1, 2), (2, 3)]


def test_play_sends_path_lengths_on_change(watched):
    decisions = [one for message in play(watched)[1:-1] for one in message["decisions"]]
    lengths = [(one["f"], one["paths"]) for one in decisions if one["paths"]]
    assert len(lengths) == 2 and lengths[0][0] == 0  # to the switch, then to the exit
    field = np.frombuffer(base64.b64decode(lengths[0][1]), "<u2").reshape(89, 51)
    x, y = (round(v / 12) for v in straight().spawn)
    bank = nppsim.BatchSimulator([straight()], 1).bank
    assert field[x, y] * 1.2 == pytest.approx(bank.path_length[0], abs=20)


def test_play_endings_only_sends_one_per_episode(watched):
    endings = play(watched, endings_only=True, episodes=5, maps=[text(straight().to_bytes())] * 2)
    assert [(level, outcome) for level, outcome, *_ in (one["ending"] for one in endings)] == [
        (index, "won") for index in (0, 1) for _ in range(5)
    ]


def test_play_error_of_agent_is_last_message(watched, plugin):
    def evaluate(levels, episodes, **_):
        yield EpisodeEnd(0, "won", 70, 1.0, 2.0, share=1.0)
        raise AgentError("no more")

    plugin.agent.evaluate = evaluate
    assert play(watched, endings_only=True) == [{"ending": [0, "won", 70, 1.0, 2.0, 1.0]}, {"error": "no more"}]


@pytest.mark.parametrize(
    ("changes", "status", "expected"),
    [
        ({"agent": "7"}, 404, "no agent '7'"),
        ({"maps": []}, 400, "1 to 4,000 episodes"),
        ({"episodes": 10**9}, 400, "1 to 4,000 episodes"),
        ({"seed": -1}, 400, "a seed"),
        ({"maps": ["?"]}, 400, "base64"),
        ({"maps": ["AAAA"]}, 400, "the level: 3 bytes"),
        ({"inputs": 5}, 400, "docs/lab/studio.md"),
        ({"live": "sundial"}, 400, "counted, measured"),
    ],
)
def test_play_invalid_request_returns_error(watched, changes, status, expected):
    (message,) = play(watched, status, **changes)
    assert expected in message["error"]


def test_play_continues_after_inputs_of_running_episode(watched, winning):
    _, *decided, ending = play(watched, inputs=text([2] * 8))
    assert decided[0]["decisions"][0]["f"] == 8 and ending["ending"][1] == "won"
    assert "ended there" in play(watched, inputs=text(winning.inputs))[0]["error"]


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
    plugin.read_experiment = lambda folder, trust_plugins: {"name": "x", "runs": [dict(run) for run in runs]}
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
