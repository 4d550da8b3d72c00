"""Subtasks: availability, targets and completion by the rules of the game."""

import numpy as np
import pytest
import torch

from nppsim.batch import BatchSimulator
from nppsim.errors import ConfigError
from nppsim.levels.kinds import MINE as MINE_KIND
from rl.config import ExperimentConfig, HierarchyConfig
from rl.config.curriculum import CurriculumConfig
from rl.policy.architectures import SUBTASK_OBSERVATIONS, ArchitectureError, get_architecture
from rl.policy.subtasks import (
    EXIT,
    EXIT_SWITCH,
    EXPLORE,
    EXPLORED_PX,
    LOCKED_DOOR,
    MINE,
    NO_SUBTASK,
    SUBTASK,
    SUBTASKS,
    ActiveSubtasks,
    is_completed,
    possible,
    quantities,
    subtask_features,
    targets,
)

from worlds import FLOOR, LEFT, RIGHT, corridor

LOCKED = corridor(spawn=20, switch=60, door=80, locked_doors=[((30, FLOOR), (40, FLOOR), 0)])
MINED = corridor(spawn=20, switch=60, door=80, entities=[(MINE_KIND, 26, FLOOR)])


def start(level):
    sim = BatchSimulator([level], 1, observations=SUBTASK_OBSERVATIONS, threads=1)
    sim.reset()
    return sim


def can(sim):
    (row,) = possible({key: torch.from_numpy(values) for key, values in sim.obs.items()})
    return {name for name, yes in zip(SUBTASKS, row.tolist(), strict=True) if yes}


def follow(sim, subtask, action, longest=1000):
    """(decisions until the subtask was over, whether it was completed)."""
    subtasks = ActiveSubtasks(1, longest)
    subtasks.start(np.array([0]), np.array([subtask]), sim.obs)
    for count in range(1, 400):
        sim.step(np.array([action]))
        over, completed = subtasks.step(sim.obs, sim.terminated | sim.truncated)
        if over[0]:
            return count, bool(completed[0])
    raise AssertionError("it never ends")


def test_exit_switch_subtask_completes():
    sim = start(corridor(spawn=20, switch=30, door=80))
    assert can(sim) == {"exit_switch", "explore"}
    count, completed = follow(sim, EXIT_SWITCH, RIGHT)
    assert completed
    assert count > 1
    assert sim.obs["reachability_features"][0, 6] == 1  # switch_collected, by this decision
    assert can(sim) == {"exit", "explore"}


def test_door_subtask_completes():
    sim = start(LOCKED)
    assert can(sim) == {"exit_switch", "locked_door", "explore"}
    assert follow(sim, LOCKED_DOOR, RIGHT)[1]
    assert sim.obs["switch_states"][0, 4] == 1
    assert "locked_door" not in can(sim)


def test_exit_subtask_ends_episode():
    sim = start(corridor(spawn=20, switch=30, door=40))
    follow(sim, EXIT_SWITCH, RIGHT)
    assert follow(sim, EXIT, RIGHT)[1] is False  # which the caller knows better, who knows the outcome
    assert sim.terminated[0]


def test_mine_subtask_completes():
    sim = start(MINED)
    assert can(sim) == {"exit_switch", "mine", "explore"}
    begun = quantities(sim.obs)
    assert begun["hazard"][0] == pytest.approx(36, abs=1)
    for gone, passed in ((0, False), (30, False), (37, True)):
        now = begun.copy()
        now["path"] -= gone
        assert is_completed(np.array([MINE]), begun, now)[0] == passed


def test_exploring_ends_at_a_distance():
    sim = start(corridor(spawn=20, switch=60, door=80))
    x = sim.obs["entity_positions"][0, 0]
    assert follow(sim, EXPLORE, RIGHT)[1]
    assert sim.obs["entity_positions"][0, 0] - x >= EXPLORED_PX


def test_time_ends_every_subtask():
    assert follow(start(LOCKED), EXIT_SWITCH, LEFT, longest=7) == (7, False)


def test_targets_are_offsets_to_entities():
    sim = start(LOCKED)
    (found,) = targets({key: torch.from_numpy(values) for key, values in sim.obs.items()})
    assert found[EXIT_SWITCH].tolist() == [240, 0]  # 40 steps of 6 px
    assert found[LOCKED_DOOR].tolist() == [60, 0]
    assert found[EXIT].tolist() == found[MINE].tolist() == [0, 0]  # not open, none near


def test_low_level_observes_only_its_subtask():
    sim = start(LOCKED)
    obs = {key: torch.from_numpy(values) for key, values in sim.obs.items()}
    found = subtask_features(obs, torch.tensor([[LOCKED_DOOR, 10]]), max_decisions=20)[0].view(len(SUBTASKS), -1)
    assert found[LOCKED_DOOR].tolist() == [1.0, 0.5, 0.5, 0.0, 0.5]  # given, half its time, half of 120 px away
    assert not found[[EXIT_SWITCH, EXIT, MINE, EXPLORE]].any()
    assert not subtask_features(obs, torch.tensor([[NO_SUBTASK, 0]]), max_decisions=20).any()


def test_active_subtasks_are_restored():
    sim, subtasks = start(LOCKED), ActiveSubtasks(1, 50)
    subtasks.start(np.array([0]), np.array([LOCKED_DOOR]), sim.obs)
    subtasks.step(sim.obs, np.array([False]))
    other = ActiveSubtasks(1, 50)
    other.load(subtasks.state())
    assert (other.active == [[LOCKED_DOOR, 1]]).all()
    assert (other.start_quantities == subtasks.start_quantities).all()


# ------------------------------------------------------------------ names and flags


def test_names_of_networks_with_subtasks():
    network = get_architecture("graph_attention+deep2+subtasks50")
    assert (network.name, network.subtasks) == ("attention+deep2+subtasks50", 50)
    assert network.imitated == get_architecture("attention+deep2")
    assert get_architecture("vision_free").imitated.name == "vision_free"
    assert SUBTASK not in network.observations


@pytest.mark.parametrize(
    "name", ["subtasks", "subtasks0", "subtasks05", "subtasks-3", "subtasks10001", "subtasks5+deep2"]
)
def test_invalid_names_are_an_error(name):
    with pytest.raises(ArchitectureError, match="give subtasksK|is not possible there"):
        get_architecture(f"vision_free+{name}")


def test_flags_give_every_network_subtasks():
    config = ExperimentConfig(
        experiment_name="x",
        architectures=("vision_free", "mlp_baseline+deep2"),
        hierarchy=HierarchyConfig(hierarchical=True, update_freq=20),
    )
    assert config.networks == ("vision_free+subtasks20", "mlp_baseline+deep2+subtasks20")


def test_settings_that_contradict_each_other():
    on = HierarchyConfig(hierarchical=True)
    with pytest.raises(ConfigError, match="--use-hierarchical-ppo"):
        ExperimentConfig(experiment_name="x", architectures=("vision_free+subtasks5",), hierarchy=on)
    waits = HierarchyConfig(hierarchical=True, from_stage="medium")
    with pytest.raises(ConfigError, match="needs a curriculum with stages"):
        ExperimentConfig(experiment_name="x", architectures=("vision_free",), hierarchy=waits)
    curriculum = CurriculumConfig(strategy="stages")
    config = ExperimentConfig(
        experiment_name="x", architectures=("vision_free",), hierarchy=waits, curriculum=curriculum
    )
    assert config.hierarchy.from_stage == "medium"
