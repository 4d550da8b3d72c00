"""The page plays a policy as torch does: equal actions, and whole episodes with equal inputs.

``NPPSIM_WASM_LEVELS`` is the number of generated levels per category; ``make test-wasm`` plays 200.
"""

import base64
import json
import os
import subprocess

import numpy as np
import pytest
import torch

from nppsim import BatchSimulator
from nppsim.generate import CATEGORIES, generate
from nppsim.gym.env import STARTER_LEVELS
from nppsim.levels.level_set import LevelSet
from nppsim.observe.statistics import ObservationStatistics
from nppsim.replays.ending import ending_of
from nppsim.simulate import simulate
from nppsim.studio.episodes import PathTracker
from nppsim.studio.game import Game
from nppsim.wasm.build import FOLDER
from rl.policy import checkpoint
from rl.policy.architectures import get_architecture
from rl.policy.inference import unsupported
from rl.policy.policy import build_policy
from rl.studio.agent import LoadedAgent
from rl.studio.policy_file import BrowserError, browser_policy

from places import ROOT, SHARED
from seen import observations
from wasm_calls import javascript, needs_node

SHIPPED = ROOT / "datasets" / "agents" / "vision_free_foresight.safetensors"
SCRIPT = ROOT / "tests" / "support" / "wasm_agent.mjs"
LEVELS = max(int(os.environ.get("NPPSIM_WASM_LEVELS", "20")) // 20, 1)
DECISIONS, ENVS = 10_000, 100
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def agent():
    return LoadedAgent(SHIPPED)


@pytest.fixture(scope="module")
def levels():
    """Generated, shipped and official levels."""
    made = [generate(category, 900 + seed)[0] for category in CATEGORIES for seed in range(LEVELS)]
    files = [STARTER_LEVELS, *sorted((SHARED / "campaign").glob("S*.txt"))]
    sets = [LevelSet.at(file) for file in files]
    return made + [one[i] for one in sets for i in range(0, len(one), -(-len(one) // (2 * LEVELS)))]


def run_script(folder, what):
    (folder / "agent.policy").write_bytes(browser_policy(SHIPPED))
    subprocess.run(javascript(SCRIPT, FOLDER, folder, what), check=True)


def played(jobs, folder):
    """Decisions of the page and number of made decisions, also undone ones, for each (level, settings, inputs)."""
    encoded = [
        {"level": text(level.to_bytes()), "inputs": text(inputs), **settings} for level, settings, inputs in jobs
    ]
    (folder / "jobs.json").write_text(json.dumps(encoded))
    run_script(folder, "episodes")
    return json.loads((folder / "results.json").read_text())["results"]


def text(data):
    return base64.b64encode(bytes(data)).decode()


def inputs_of(decisions):
    return b"".join(base64.b64decode(one["inputs"]) for one in decisions)


@needs_node
def test_outputs_of_ten_thousand_observations_equal_those_of_torch(levels, tmp_path):
    policy, fields = checkpoint.load_policy(SHIPPED)
    sim = BatchSimulator(levels, ENVS, frame_skip=fields["frame_skip"], observations=policy.observations, threads=1)
    obs, rng, rows, expected = sim.reset(), torch.Generator().manual_seed(0), [], []
    for _ in range(DECISIONS // ENVS):
        rows.append({key: obs[key].copy() for key in policy.observations})
        with torch.no_grad():
            logits, values = policy.logits_and_values(policy.to_tensors(obs))
        expected.append(torch.cat((logits, values[:, None]), dim=1).numpy())
        obs = sim.step(policy.act(obs, deterministic=False, rng=rng))
    for key in policy.observations:
        np.concatenate([row[key] for row in rows]).tofile(tmp_path / key)
    run_script(tmp_path, "outputs")
    got, expected = np.fromfile(tmp_path / "outputs", "<f4").reshape(-1, 7), np.concatenate(expected)
    np.testing.assert_allclose(got, expected, atol=1e-4, rtol=1e-5)
    assert (got[:, :6].argmax(axis=1) == expected[:, :6].argmax(axis=1)).all()


@needs_node
def test_episodes_equal_those_of_python(agent, levels, tmp_path):
    if LEVELS == 1:  # official levels take minutes
        levels = levels[: len(CATEGORIES)]
    levels = [
        *levels,
        *(generate("campaign_like", seed)[0] for seed in (904, 905)),
    ]  # with hundreds of undone decisions
    jobs = [(level, {"seed": i, "deterministic": i % 2 == 0}, b"") for i, level in enumerate(levels)]
    results = played(jobs, tmp_path)
    differ, backtracked, lost = [], 0, 0
    for i, ((level, settings, _), result) in enumerate(zip(jobs, results, strict=True)):
        own = list(agent.play(level, **settings))
        wanted = np.concatenate([one.inputs for one in own]).tobytes(), own[-1].outcome
        if wanted != (inputs_of(result["decisions"]), result["decisions"][-1]["outcome"]):
            differ.append(i)
        backtracked += result["made"] > len(own)
        ending = ending_of(level, np.concatenate([one.inputs for one in own]))
        assert result["why"] == ending.text(own[-1].backtracks)
        assert result["place"] == list(ending.place)
        assert result["share"] == pytest.approx(ending.share, abs=1e-6)
        lost += ending.outcome != "won"
    assert differ == []
    assert lost > 0, "no episode has tested endings"
    assert backtracked > 0, "no episode has tested backtracking"


@needs_node
def test_decisions_show_the_observations_and_outputs_of_python(agent, tmp_path):
    level = generate("complex", 1)[0]
    ((result),) = played([(level, {"seed": 3, "deterministic": False}, b"")], tmp_path)
    own, frame = list(agent.play(level, seed=3)), 0
    assert len(own) == len(result["decisions"]) > 10
    game, tracker = Game(level), None
    tracker = PathTracker(game.bank)
    for mine, one in zip(own, result["decisions"], strict=True):
        assert (one["f"], one["a"]) == (frame, mine.action)
        assert one["p"] == pytest.approx(mine.probabilities, abs=1e-4)
        assert (one["v"], one["h"]) == (pytest.approx(mine.value, abs=1e-3), pytest.approx(mine.entropy, abs=1e-3))
        assert one["r"] == pytest.approx({name: value for name, value in mine.terms.items() if value})
        assert {key: base64.b64decode(data) for key, data in one["s"].items()} == {
            key: values.tobytes() for key, values in mine.seen.items()
        }
        assert one["paths"] == tracker.changed(game)
        frame += len(mine.inputs)
        game.play(mine.inputs)


@needs_node
def test_agent_continues_a_run_as_in_python(agent, tmp_path):
    level = generate("simple", 5)[0]
    inputs = np.repeat(np.array([2, 3, 0, 4], np.uint8), 9)
    assert simulate(level, inputs).outcome == "running"
    ((result),) = played([(level, {"deterministic": True}, inputs)], tmp_path)
    game = Game(level)
    game.play(inputs)
    own = list(agent.play(level, deterministic=True, start=game.start))
    assert inputs_of(result["decisions"]) == np.concatenate([one.inputs for one in own]).tobytes()


@needs_node
def test_page_refuses_damaged_file(tmp_path):
    data = bytearray(browser_policy(SHIPPED))
    data[-1] ^= 1
    (tmp_path / "agent.policy").write_bytes(data)
    done = subprocess.run(javascript(SCRIPT, FOLDER, tmp_path, "outputs"), capture_output=True, text=True)
    assert done.returncode != 0 and "policy: damaged; load the page again" in done.stderr


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("mlp_baseline", "image encoders"),
        ("vision_free_gcn", "a graph network"),
        ("vision_free+gru", "a recurrent state"),
        ("vision_free+subtasks12", "subtasks"),
        ("vision_free+state4", "stacked frames"),
        ("vision_free+deep2", "deep heads"),
    ],
)
def test_browser_policy_of_other_network_names_what_the_page_cannot_run(name, part, tmp_path):
    assert unsupported(get_architecture(name)) == part
    if name == "vision_free+gru":
        policy = build_policy(name)
        statistics = ObservationStatistics(policy.observations)
        statistics.update(observations(50))
        policy.set_statistics(statistics)
        path = checkpoint.save(tmp_path / "own.safetensors", policy, frame_skip=4)
        with pytest.raises(BrowserError, match=r"own\.safetensors: vision_free\+gru has a recurrent state"):
            browser_policy(path)


def test_browser_policy_damaged_file_raises(tmp_path):
    path = tmp_path / "own.safetensors"
    data = bytearray(SHIPPED.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match="damaged"):
        browser_policy(path)
