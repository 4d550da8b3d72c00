"""Agents as the studio watches them."""

from importlib.metadata import entry_points

import numpy as np
import pytest
import torch

import nppsim
from nppsim.actions import ACTION_INPUT
from nppsim.batch import BatchSimulator
from nppsim.observe.statistics import ObservationStatistics
from nppsim.reward import PRESETS, TERMS
from nppsim.studio.agents import CLOCKS, GROUP, AgentError, find_plugin
from nppsim_agents.agents import checkpoints
from rl.policy import architectures, checkpoint
from rl.policy.architectures import Architecture
from rl.policy.backtracking import BacktrackingPlayer
from rl.policy.checkpoint import CheckpointError
from rl.policy.onnx import to_onnx
from rl.policy.policy import build_policy
from rl.search import live
from rl.studio import agent as agent_module
from rl.studio.agent import BATCH_EPISODES

from places import ROOT
from seen import observations
from worlds import corridor, straight

SHIPPED = ROOT / "datasets" / "agents" / "vision_free_foresight.safetensors"
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def agent():
    return checkpoints().load_agent(SHIPPED)


def with_statistics(policy):
    statistics = ObservationStatistics(policy.observations)
    statistics.update(observations(50))
    policy.set_statistics(statistics)
    return policy


@pytest.fixture(scope="module")
def beginner(tmp_path_factory):
    """An agent that has learned nothing, with a high level."""
    policy = with_statistics(build_policy("vision_free+subtasks12"))
    path = checkpoint.save(tmp_path_factory.mktemp("agents") / "beginner.safetensors", policy, frame_skip=4)
    return checkpoints().load_agent(path)


def test_shipped_agent_is_found_and_finishes_easy_level(agent):
    assert checkpoints().shipped_agent() == SHIPPED
    decisions = list(agent.play(straight()))
    run = nppsim.simulate(straight(), np.concatenate([one.inputs for one in decisions]))
    assert run.outcome == decisions[-1].outcome == "won"
    assert run.frames == sum(len(one.inputs) for one in decisions)
    assert all(one.outcome is None for one in decisions[:-1])


def test_live_play_reports_thinking_and_plan(agent):
    decisions = list(agent.play(straight(), live="counted"))
    run = nppsim.simulate(straight(), np.concatenate([one.inputs for one in decisions]))
    assert run.outcome == decisions[-1].outcome == "won"
    assert decisions[0].thinks and not decisions[-1].thinks
    assert [one.ahead for one in decisions[-3:]] == [3, 2, 1]
    assert next(agent.play(straight())).ahead is None


def test_live_play_with_the_measured_clock_ends_with_its_iterator(agent):
    decisions = agent.play(straight(), live="measured")
    assert next(decisions).ahead > 0
    decisions.close()
    inputs = np.concatenate([one.inputs for one in agent.play(straight(), live="measured")])
    assert nppsim.simulate(straight(), inputs).won


def test_clocks_of_the_studio_are_those_of_live_play():
    assert tuple(live.CLOCKS) == CLOCKS


def test_live_play_recurrent_policy_is_refused(tmp_path):
    path = checkpoint.save(
        tmp_path / "memory.safetensors", with_statistics(build_policy("vision_free+gru")), frame_skip=4
    )
    with pytest.raises(AgentError, match="without GRU"):
        next(checkpoints().load_agent(path).play(straight(), live="counted"))


def test_shown_outputs_are_those_acted_on(agent):
    """Probabilities that are drawn from, the value of that state, and every reward of the episode."""
    policy, _ = checkpoint.load_policy(SHIPPED)
    decisions = list(agent.play(straight(mine=True), deterministic=True))
    for one in decisions:
        seen = {key: one.seen[key][None] for key in agent.observations}
        logits, value = policy.logits_and_values(policy.to_tensors(seen))
        wanted = logits.softmax(dim=1)[0].detach().numpy()
        assert one.probabilities == pytest.approx(wanted, abs=1e-5)
        assert one.value == pytest.approx(value.item(), abs=1e-4)
        assert one.entropy == pytest.approx(-np.sum(wanted * np.log(wanted)), abs=1e-4)
        assert one.action == np.argmax(one.probabilities)
        assert (one.inputs == ACTION_INPUT[one.action]).all()
        assert tuple(one.terms) == TERMS
    died = decisions[-1].outcome == "died"
    ends = {"win": PRESETS["default"].win * (not died), "death": PRESETS["default"].death * died}
    for term, total in ends.items():
        assert sum(one.terms[term] for one in decisions) == pytest.approx(total)


def test_episode_depends_only_on_seed(agent):
    def actions(seed):
        return [one.action for one in agent.play(straight(mine=True), seed=seed)]

    alone = actions(1)
    first = agent.play(straight(mine=True), seed=1)
    beside = agent.play(straight(), seed=2)
    together = []
    for one in first:
        together.append(one.action)
        next(beside, None)
    assert together == alone == actions(1)


def test_live_view_after_backtracking_shows_final_decisions_only(tmp_path, monkeypatch):
    """An untrained agent explores without success; the page shows each remaining decision of the run once."""
    policy = build_policy("vision_free_foresight")
    level = corridor(door=250)
    sim = BatchSimulator([level], 2, observations=policy.observations)
    statistics = ObservationStatistics(policy.observations)
    statistics.update(sim.reset())
    policy.set_statistics(statistics)
    path = checkpoint.save(tmp_path / "agent.safetensors", policy, frame_skip=4)
    counts = []

    def counted(player, rng, backtrack=BacktrackingPlayer.backtrack):
        found = backtrack(player, rng)
        counts.extend(found.values())
        return found

    monkeypatch.setattr(BacktrackingPlayer, "backtrack", counted)
    monkeypatch.setattr(agent_module, "GAME_TIME", 1200)
    decisions = list(checkpoints().load_agent(path).play(level, deterministic=True))
    assert counts
    assert decisions[-1].outcome is not None and all(one.outcome is None for one in decisions[:-1])
    assert all(len(one.inputs) == 4 for one in decisions[:-1])
    run = nppsim.simulate(level, np.concatenate([one.inputs for one in decisions]))
    shown = sum(one.terms["time"] for one in decisions)
    assert run.frames == sum(len(one.inputs) for one in decisions)
    assert shown == pytest.approx(PRESETS["default"].time * run.frames, rel=1e-4)


class _Small(torch.nn.Module):
    size = 8

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(26, 8)

    def forward(self, seen):
        return torch.tanh(self.layer(seen["game_state"]))


def test_exported_agent_shown_outputs_are_those_acted_on(tmp_path, monkeypatch):
    pytest.importorskip("onnxscript", reason="onnxscript is not installed (extra: onnx)")
    small = Architecture("small", "", module=_Small, reads=("game_state",), fusion=(8,), heads=(8,))
    monkeypatch.setitem(architectures.ARCHITECTURES, "small", small)
    policy = with_statistics(build_policy("small"))
    (tmp_path / "agent.onnx").write_bytes(to_onnx(policy, frame_skip=4))
    agent = checkpoints().load_agent(tmp_path / "agent.onnx")
    assert agent.facts["architecture"] == "small" and "default" in agent.facts["rewards"]
    for deterministic in (False, True):
        for one in agent.play(straight(mine=True), seed=1, deterministic=deterministic):
            logits, value = policy.logits_and_values(policy.to_tensors({"game_state": one.seen["game_state"][None]}))
            wanted = logits.softmax(dim=1)[0].detach().numpy()
            assert one.probabilities == pytest.approx(wanted, abs=1e-5)
            assert one.value == pytest.approx(value.item(), abs=1e-4)
            assert one.action == np.argmax(one.probabilities) or not deterministic
        assert one.outcome is not None
    assert len(list(agent.evaluate([straight()], 2))) == 2


def test_active_subtask_is_named(beginner):
    assert next(beginner.play(straight())).note in ("exit switch", "locked door", "exit", "mine", "explore")


def test_tries_say_how_and_where_episodes_end(agent):
    levels = [straight(), straight(mine=True)]
    endings = list(agent.evaluate(levels, 3, seed=3))
    assert [one.level for one in endings] == [0] * 3 + [1] * 3
    assert list(agent.evaluate(levels, 3, seed=3)) == endings
    assert {one.outcome for one in endings[:3]} == {"won"}
    assert all(one.x > 10 * 24 for one in endings[:3])  # at the exit


def test_more_tries_than_are_played_at_once_differ(beginner):
    endings = list(beginner.evaluate([straight(mine=True)], BATCH_EPISODES + 2))
    assert len(endings) == BATCH_EPISODES + 2
    assert len({(one.x, one.y) for one in endings}) > 1
    dead = [one for one in endings if one.outcome == "died"]
    assert dead
    assert all(abs(one.x - 6 * 24) < 30 for one in dead)  # at the mine


def test_file_without_agent_raises(tmp_path):
    (tmp_path / "agent.safetensors").write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match="not a checkpoint"):
        checkpoints().load_agent(tmp_path / "agent.safetensors")


def test_plugin_found_by_entry_point():
    if not entry_points(group=GROUP):
        pytest.skip("this installation is older than its entry point: install again")
    assert find_plugin().shipped_agent() == SHIPPED


def test_two_plugins_are_one_too_many(monkeypatch):
    from importlib.metadata import EntryPoint

    from nppsim.studio import agents

    found = [EntryPoint("a", "one:plugin", GROUP), EntryPoint("b", "two:plugin", GROUP)]
    monkeypatch.setattr(agents, "entry_points", lambda group: found)
    with pytest.raises(AgentError, match="one:plugin, two:plugin"):
        find_plugin()
