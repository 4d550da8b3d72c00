"""Shadow validation: agreement with the references, and detection of injected errors."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest

from nppsim.bank import LevelBank
from nppsim.batch import BatchSimulator
from nppsim.gym.env import NppEnv
from nppsim.gym.vector_env import NppVectorEnv
from nppsim.observe import layout
from nppsim.reward import PRESETS, RewardConfig

from places import ROOT
from worlds import KINDS, MIXED, SPARSE_REWARDS, UNFINISHED, corridor, mixed_level, random_level, room

SCRIPT = ROOT / "scripts" / "run_training_validation.sh"
EVERY_TERM = RewardConfig(4.0, -1.0, 0.5, -0.01, 2.0, closest=0.01, proximity=0.3, exploration=0.05)
LEVELS = [
    corridor(20, 24, 32, name="win"),
    corridor(20, 40, 60, entities=[(1, 34, 46)], name="death"),
    corridor(40, 120, 140, locked_doors=[((44, 46), (80, 44), 0)], trap_doors=[((30, 46), (20, 44), 0)], name="doors"),
    room((88, 46), [((150, 46), (160, 46)), ((92, 46), (120, 46))], entities=[(5, 100, 46, 0), (21, 84, 46)]),
    *(random_level(seed, 0.25, 40, exits=seed) for seed in (0, 1, 2, 3)),
]


def short_bank(levels=LEVELS, time_limit=80):
    """A bank whose episodes end soon."""
    bank = LevelBank(levels)
    bank.time_limit[:] = time_limit
    return bank


def play(sim, steps, seed=0):
    """Random actions, each repeated for four decisions, mostly to the right; random levels.  Returns how episodes ended."""
    rng, outcomes = np.random.default_rng(seed), []
    sim.reset()
    for step in range(steps):
        if step % 4 == 0:
            actions = rng.choice(6, sim.num_envs, p=[0.05, 0.1, 0.4, 0.1, 0.05, 0.3])
        sim.step(actions)
        outcomes += sim.episode["outcome"][sim.finished].tolist()
        sim.next_level[sim.finished] = rng.integers(0, len(sim.bank), len(sim.finished))
    return outcomes


@pytest.mark.parametrize(
    ("reward", "observations"), [(EVERY_TERM, layout.ALL), *((name, ("state", "reachability")) for name in PRESETS)]
)
def test_random_play_agrees_with_reference(reward, observations):
    sim = BatchSimulator(short_bank(), len(LEVELS), observations=observations, reward=reward, gamma=0.97, shadow=True)
    outcomes = play(sim, 40)
    assert set(outcomes) == {0, 1, 2}  # time-out, win, death
    assert sim.shadow.kinds == {}
    assert sim.shadow.comparisons_of.tolist() == [41] * len(LEVELS)  # with the reset
    assert (sim._fields.own_level >= 0).any()  # doors were touched, and ways changed


def test_random_play_moving_entities_agree_with_reference():
    everything, few = MIXED + UNFINISHED, [*KINDS, (20, 28), (20, 28, 17), (10, 11, 24)]
    levels = [mixed_level(seed, 0.1, 60, kinds=everything) for seed in range(3)]
    levels += [mixed_level(seed, 0.05, 40, kinds=kinds, doors=0) for seed, kinds in enumerate(few)]
    sim = BatchSimulator(short_bank(levels, 240), len(levels), observations=layout.ALL, shadow=True)
    rng, seen = np.random.default_rng(0), set()  # what was in the ninja's window: (type, state)
    sim.reset()
    for step in range(13):
        if step % 4 == 0:
            actions = rng.choice(6, sim.num_envs, p=[0.05, 0.15, 0.3, 0.1, 0.2, 0.2])
        sim.step(actions)
        for ninja, movers, level in zip(
            sim.state.ninja, sim.state.movers, sim.bank.world.level[sim.level], strict=True
        ):
            moving = movers[level["first_moving"] : level["mover_end"] - level["mover_first"]]
            gaps = np.maximum(abs(moving["x"] - ninja["x"]), abs(moving["y"] - ninja["y"]))
            seen |= set(moving[["type", "state"]][gaps < 114].tolist())
    assert sim.shadow.kinds == {}
    assert {kind for kind, _ in seen} == {12, 13, 14, 15, 16, 17, 18, 19, 20, 23, 25, 26, 28}
    assert {state for kind, state in seen if kind == 20} == {0, 1, -1}  # charging, retreating
    assert {state for kind, state in seen if kind == 28} == {0, 1, 2, 3}


def test_bank_without_completions_agrees():
    bank = LevelBank([mixed_level(0, num_entities=60, kinds=MIXED + UNFINISHED)], completions=False)
    sim = BatchSimulator(bank, 1, observations=layout.ALL, shadow=True)
    play(sim, 5)
    assert (sim.shadow.comparisons, sim.shadow.mismatches) == (6, 0)


@pytest.mark.parametrize("frame_skip", [1, 3])
def test_any_frame_skip_and_observations_agree(frame_skip):
    for keys in (("state",), ("hazards",), ("surroundings", "reachability"), ("player_frame", "switches", "entities")):
        sim = BatchSimulator(short_bank(), 4, frame_skip=frame_skip, observations=keys, shadow=True)
        play(sim, 10)
        assert (sim.shadow.comparisons, sim.shadow.mismatches) == (11 * 4, 0)


def test_restored_snapshots_between_steps_agree():
    sim = BatchSimulator(short_bank(), 4, reward=EVERY_TERM, shadow=True)
    play(sim, 10)
    before = [sim.snapshot(i) for i in range(4)]
    play(sim, 10, seed=1)
    for i in range(4):
        sim.restore(i, before[3 - i])
    sim.observe()
    for _ in range(30):
        sim.step(np.full(4, 2))
    assert sim.shadow.mismatches == 0


def test_gymnasium_envs_final_observations_agree(monkeypatch):
    monkeypatch.setenv("NPPSIM_SHADOW", "1")
    bank = short_bank()
    single, many = (
        NppEnv(bank, layout.ALL),
        NppVectorEnv(bank, 5, layout.ALL, reward=SPARSE_REWARDS, autoreset_mode="SAME_STEP"),
    )
    for level in range(3):
        single.reset(options={"level": level})
        while not any(single.step(2)[2:4]):
            pass
    many.reset(seed=0)
    for _ in range(40):
        many.step(np.full(5, 2))
    assert min(single.simulator.shadow.comparisons, many.simulator.shadow.comparisons) > 40
    assert single.simulator.shadow.kinds == many.simulator.shadow.kinds == {}


# -------------------------------------------------------------------------------------------------- values that are wrong
def broken(monkeypatch, change, levels=LEVELS[:1], **options):
    """A simulator that has taken three steps, with ``change`` called after the kernel of the third."""
    sim = BatchSimulator(short_bank(levels), 3, shadow=True, **options)
    sim.reset()
    run, calls = sim._run, []

    def run_and_break(*arguments):
        run(*arguments)
        calls.append(1)
        if len(calls) == 3:
            change(sim)

    monkeypatch.setattr(sim, "_run", run_and_break)
    for _ in range(3):
        sim.step(np.array([0, 2, 2]))
    return sim


def set_to(array, index, value):
    array[index] = value


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        (
            lambda s: set_to(s.obs["game_state"], (1, 2), 9.5),
            "game_state",
            r"index \(2,\) \(vx\): simulator 9.5, reference ",
        ),
        (lambda s: set_to(s.obs["hazards"], (1, 7, 4), 4.0), "hazards", r"index \(7, 4\) \(radius\)"),
        (
            lambda s: set_to(s.obs["global_view"], (1, 9, 5, 0), 1),
            "global_view",
            r"index \(9, 5, 0\): simulator 1, reference 255",
        ),
        (lambda s: set_to(s.rewards, 1, 0.25), "reward", r"index \(\): simulator 0.25, reference -?0.0"),
        (lambda s: set_to(s.state.terms, (1, 3), 1.0), "reward sums", r"index \(3,\) \(time\)"),
        (lambda s: set_to(s.state.progress["potential"], 1, -1.0), "progress potential", "simulator -1.0"),
        (
            lambda s: set_to(s.state.entities["active"], (1, 1), 0),
            "entities",
            r"\(1,\) \(active\): simulator 0, reference 1",
        ),
        (lambda s: set_to(s.truncated, 1, True), "truncated", "simulator True, reference False"),
    ],
)
def test_broken_value_reported_with_position(monkeypatch, capsys, change, kind, words):
    sim = broken(monkeypatch, change, observations=layout.ALL)
    assert sim.shadow.kinds[kind] == 1
    assert sim.shadow.mismatches_of[0] == sim.shadow.mismatches_of[2] == 0
    assert sim.shadow.mismatches_of[1] == sim.shadow.mismatches >= 1
    lines = [line for line in capsys.readouterr().err.splitlines() if f"first mismatch of {kind}:" in line]
    assert len(lines) == 1
    assert "environment 1, level 'win', frame 12, " in lines[0]
    assert re.search(words, lines[0])


def test_broken_path_counted_everywhere_and_reported_once(monkeypatch, capsys):
    def change(sim):
        sim.bank.paths.distance[0, 1, 30 * 51 + 23] += 1
        sim.bank.paths.next_step[0, 0, 5 * 51 + 23] ^= 1

    sim = broken(monkeypatch, change, observations=("reachability",))
    assert sim.shadow.kinds == {"path distance": 3, "path step": 3}
    assert sim.shadow.mismatches_of.tolist() == [2, 2, 2]
    printed = capsys.readouterr().err
    assert printed.count("first mismatch of path distance: environment 0") == 1
    assert "index (1, 30, 23): simulator " in printed
    assert "first mismatch of path step: environment 0, level 'win', frame 12, index (0, 5, 23): simulator 1" in printed


def test_broken_path_behind_open_door_detected():
    sim = BatchSimulator(LEVELS[2:3], 1, shadow=True)
    sim.reset()
    while not sim.obs["switch_states"][0, 4]:
        sim.step(np.array([2]))
    assert sim.shadow.mismatches == 0
    sim._fields.own_distance[:, 0, 30 * 51 + 23] += 1
    sim.step(np.array([2]))
    assert sim.shadow.kinds["path distance"] == 1


def test_broken_episode_end_detected():
    sim = BatchSimulator(short_bank(time_limit=12), 2, observations=("state",), shadow=True)
    sim.reset()
    for _ in range(3):
        sim.bank.path_length[sim.next_level] += 1.0  # of the level that comes next
        sim.step(np.zeros(2, int))
    assert sim.finished.tolist() == [0, 1]
    assert sim.shadow.kinds["progress path_start"] == 2


# ---------------------------------------------------------------------------------------------------- switching, reports
@pytest.mark.parametrize(
    ("variable", "argument", "on"),
    [(None, None, False), ("1", None, True), ("0", None, False), ("1", False, False), (None, True, True)],
)
def test_shadow_off_unless_requested(monkeypatch, variable, argument, on):
    monkeypatch.delenv("NPPSIM_SHADOW", raising=False)
    if variable is not None:
        monkeypatch.setenv("NPPSIM_SHADOW", variable)
    sim = BatchSimulator(LEVELS[:1], 1, shadow=argument)
    monkeypatch.setenv("NPPSIM_SHADOW", "0" if on else "1")  # is not looked at any more
    sim.reset()
    sim.step(np.zeros(1, int))
    assert (sim.shadow is not None) == on


def test_shadow_not_imported_unless_requested():
    code = "import sys, nppsim; nppsim.BatchSimulator; sys.exit('nppsim.shadow' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_progress_printed_after_1000_comparisons(capsys):
    sim = BatchSimulator(short_bank(LEVELS[:1]), 50, observations=("state",), shadow=True)
    play(sim, 25)
    assert "shadow: 1,000 comparisons, 0 mismatches\n" in capsys.readouterr().err


TOTAL = """
import sys, numpy as np
sys.path.insert(0, "tests/support")
from worlds import corridor
from nppsim.batch import BatchSimulator
sim = BatchSimulator([corridor()], 3, observations=("state",))
sim.reset()
for _ in range(9):
    sim.step(np.full(3, 2))
sim.bank.path_length[:] += 1.0
sim.reset()
"""


def test_total_printed_at_process_end():
    environment = os.environ | {"NPPSIM_SHADOW": "1"}
    command = [sys.executable, "-c", TOTAL]
    done = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
    last = done.stderr.splitlines()[-1]
    assert last == "shadow: total of 3 environments: 33 comparisons, at least 11 in each, 6 mismatches"


# ------------------------------------------------------------------------------------------------------------- the script
STAND_IN = """#!/usr/bin/env bash
echo "trained with shadow=$NPPSIM_SHADOW and $*"
{total}
exit {status}
"""


def validation(tmp_path, mode, *flags, comparisons=None, mismatches=0, status=0):
    """The finished script, with a stand-in for training that makes so many comparisons in each of 32 environments."""
    (tmp_path / "scripts").mkdir(exist_ok=True)
    copy = tmp_path / "scripts" / SCRIPT.name
    copy.write_text(SCRIPT.read_text())
    python = tmp_path / "python"
    total = f"total of 32 environments: 9 comparisons, at least {comparisons} in each, {mismatches} mismatches"
    line = "" if comparisons is None else f"echo 'shadow: {total}' >&2"
    python.write_text(STAND_IN.format(total=line, status=status))
    python.chmod(0o755)
    command = ["bash", str(copy), mode, *flags]
    environment = os.environ | {"PYTHON": str(python)}
    return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)


def test_validation_script_passes_flags_and_writes_log(tmp_path):
    done = validation(tmp_path, "320", "--seeds", "7", comparisons=10)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "trained with shadow=1" in done.stdout
    assert "--total-timesteps 2048 --num-envs 32" in done.stdout  # whole rollouts of 64
    assert "--seeds 7" in done.stdout
    (log,) = (tmp_path / "runs" / "validation").glob("320_*.log")
    assert log.read_text() == done.stdout


@pytest.mark.parametrize(
    ("mode", "outcome", "words"),
    [
        ("smoke", {"comparisons": 575}, "at least 575 comparisons in each of 32 environments; failed, 576 comparisons"),
        ("smoke", {"comparisons": 576, "mismatches": 1}, "validation: 1 mismatches"),
        ("smoke", {}, "at least 0 comparisons"),
        ("smoke", {"comparisons": 9999, "status": 2}, "trained with shadow=1"),
        ("soak", {"comparisons": 20000}, "at least 0 comparisons in each of 128 environments; failed, 10000"),
        ("smok", {}, "the first argument is 'smok'; give smoke, soak or a number"),
        ("31", {}, "give at least 32"),
    ],
)
def test_validation_script_fails_on_incomplete_comparison(tmp_path, mode, outcome, words):
    done = validation(tmp_path, mode, **outcome)
    assert done.returncode != 0
    assert words in done.stdout + done.stderr
    assert "passed" not in done.stdout
