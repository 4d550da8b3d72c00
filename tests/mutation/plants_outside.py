"""Faults of what is made beside training, as a fourth adversary chose them: searches, levels, demonstrations, Minari data
sets, uploads; and of memories and subtasks where nobody had looked."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

import bc.minari
import nppsim.planner
import rl.upload
from bc.batches import Sequences
from bc.planned_demonstrations import _Files
from bc.train import BCResult
from nppsim.generate import generate
from nppsim.replays.replay_set import ReplayWriter
from rl.distillation import Distiller
from rl.policy.commander import COMMAND, NO_SUBTASK, SUBTASKS
from rl.policy.player import HierarchicalPlayer, RecurrentPlayer
from rl.policy.recurrent import MEMORY
from rl.ppo.hierarchy.ppo import HierarchicalPPO
from rl.ppo.recurrent import RecurrentPPO
from rl.search import job as solving
from rl.search.levels import read_tasks
from rl.search.results import Solved
from rl.search.solve import solve
from tests.mutation.mutations import Plants, fault
from tests.mutation.plants_hierarchy import SUBTASKS_ON
from tests.mutation.plants_memory import REMEMBERING

DISTILLED = ("--teacher", "datasets/agents/vision_free_foresight.safetensors", "--teacher-decisions", "2048")


def _moved_on(found: list) -> list:
    """The last first."""
    return [found[-1], *found[:-1]]


# ---------------------------------------------------------------------------------------------------------------------
# Searches


@fault("what a search has found belongs to other levels", "F66", "F94", stage="solve")
def _(plant: Plants) -> None:
    def changed(original, *given):
        tasks, solutions = zip(*original(*given), strict=True)
        return zip(tasks, _moved_on(list(solutions)), strict=True)

    plant.wrap(solving, "_solutions", changed)


@fault("a run that ends before the exit is told as solved", "H42", stage="solve")
def _(plant: Plants) -> None:
    def changed(original, *given, **named):
        found = original(*given, **named)
        run = replace(found.run, inputs=found.run.inputs[:-2], frames=found.run.frames - 2)
        return replace(found, run=run)

    plant.around(solve, changed)


@fault("a run is told as shorter than it is", "F61", stage="solve")
def _(plant: Plants) -> None:
    plant.set(Solved, "frames", property(lambda one: one.solution.run and one.solution.run.frames - 4))


@fault("pars of levels are those of their neighbours", "F61", "F66", stage="solve")
def _(plant: Plants) -> None:
    def changed(original, *given):
        tasks = original(*given)
        pars = _moved_on([task.par_frames for task in tasks])
        return [replace(task, par_frames=par) for task, par in zip(tasks, pars, strict=True)]

    plant.around(read_tasks, changed)


@fault("levels that were not searched are left out of the results", "F94", stage="solve")
def _(plant: Plants) -> None:
    plant.wrap(solving, "_solutions", lambda original, *given: list(original(*given))[:1])


@fault("runs of a search count for another category where they are to be learned from", "F113", stage="solve")
def _(plant: Plants) -> None:
    def changed(original, writer, run, *, category="", **about):
        original(writer, run, category="simplest", **about)

    plant.wrap(ReplayWriter, "append", changed)


# ---------------------------------------------------------------------------------------------------------------------
# Levels and demonstrations


@fault("levels that nobody has finished are in a generated set", "F9", "H36", stage="levels")
def _(plant: Plants) -> None:
    plant.around(nppsim.planner.par_frames, lambda original, level: 100)


@fault("generated levels are of another category than they count for", "F94", "F113", stage="levels")
def _(plant: Plants) -> None:
    others = {"simplest": "simpler", "simpler": "simplest"}

    def changed(original, category, *given):
        level, entry = original(others[category], *given)
        return level, replace(entry, category=category)

    plant.around(generate, changed)


@fault("pars of generated levels are twice the planner's", "F61", stage="levels")
def _(plant: Plants) -> None:
    plant.around(nppsim.planner.par_frames, lambda original, level: 2 * original(level))


@fault("runs of the planner are written before they reach the exit", "H42", stage="levels")
def _(plant: Plants) -> None:
    def changed(original, files, entry, seed, run):
        original(files, entry, seed, replace(run, inputs=run.inputs[:-4]))

    plant.wrap(_Files, "append", changed)


@fault("runs of the planner are written to another category's file", "F113", stage="levels")
def _(plant: Plants) -> None:
    def changed(original, files, entry, *given):
        original(files, replace(entry, category="simplest"), *given)

    plant.wrap(_Files, "append", changed)


# ---------------------------------------------------------------------------------------------------------------------
# Minari, uploads


@fault("observations of a Minari dataset are a decision late", "H5", "H6", stage="minari")
def _(plant: Plants) -> None:
    def changed(original, *given):
        episode = original(*given)
        late = {key: np.concatenate([seen[:1], seen[:-1]]) for key, seen in episode["observations"].items()}
        return episode | {"observations": late}

    plant.around(bc.minari._episode, changed)


@fault("rewards of a Minari dataset are 0", "F97", stage="minari")
def _(plant: Plants) -> None:
    def changed(original, *given):
        episode = original(*given)
        return episode | {"rewards": [0.0] * len(episode["rewards"])}

    plant.around(bc.minari._episode, changed)


@fault("episodes of a Minari dataset are all said to be on the first level", "F66", stage="minari")
def _(plant: Plants) -> None:
    levels: list[str] = []

    def changed(original, *given):
        episode = original(*given)
        levels.append(episode["options"]["level"])
        return episode | {"options": episode["options"] | {"level": levels[0]}}

    plant.around(bc.minari._episode, changed)


@fault("a Minari dataset has one episode alone", "F94", stage="minari")
def _(plant: Plants) -> None:
    plant.around(bc.minari._episodes, lambda original, *given: list(original(*given))[:1])


@fault("weights are left out of uploads", "F42", stage="upload")
def _(plant: Plants) -> None:
    plant.set(rl.upload, "_UNFINISHED", (".tmp", ".part", ".safetensors"))


@fault("the manifest tells of files that were not uploaded", "F61", stage="upload")
def _(plant: Plants) -> None:
    def changed(original, uploader, path, key):
        if path.suffix != ".mp4":
            original(uploader, path, key)

    plant.wrap(rl.upload.Uploader, "_upload", changed)


@fault("uploads leave out what lies in folders", "F42", stage="upload")
def _(plant: Plants) -> None:
    plant.set(Path, "rglob", Path.glob)


# ---------------------------------------------------------------------------------------------------------------------
# Memories, subtasks, lessons, imitation


@fault("a time-out is valued as if nothing were remembered", "H11", "H15", flags=(*REMEMBERING, "--no-pretraining"))
def _(plant: Plants) -> None:
    def changed(original, ppo, *given):
        seen = original(ppo, *given)
        return {**seen, MEMORY: np.zeros_like(seen[MEMORY])}

    plant.wrap(RecurrentPPO, "last_seen", changed)


@fault("a time-out is valued as if no subtask were in force", "H11", "H15", flags=(*SUBTASKS_ON, "--no-pretraining"))
def _(plant: Plants) -> None:
    def changed(original, ppo, *given):
        seen = original(ppo, *given)
        return {**seen, COMMAND: np.full_like(seen[COMMAND], NO_SUBTASK)}

    plant.wrap(HierarchicalPPO, "last_seen", changed)


@fault("evaluations forget after every decision", "F94", "H15", flags=REMEMBERING)
def _(plant: Plants) -> None:
    def changed(original, player, *given, **named):
        actions = original(player, *given, **named)
        player.states[:] = 0
        return actions

    plant.wrap(RecurrentPlayer, "act", changed)


@fault("subtasks of evaluations are drawn by chance", "F94", "F28", flags=SUBTASKS_ON)
def _(plant: Plants) -> None:
    def changed(original, player, obs, envs, **named):
        with Plants() as there:
            count = torch.zeros(len(envs), len(SUBTASKS))
            there.set(player.policy, "choose_subtasks", lambda seen: (count[: len(seen["game_state"])], None))
            return original(player, obs, envs, **named)

    plant.wrap(HierarchicalPlayer, "act", changed)


@fault("subtasks of evaluations last too long", "F94", "F85", flags=SUBTASKS_ON)
def _(plant: Plants) -> None:
    def changed(original, player, *given, **named):
        player._commands.longest = 1000
        return original(player, *given, **named)

    plant.wrap(HierarchicalPlayer, "act", changed)


def _remembered(plant: Plants, change: Callable[[list[torch.Tensor]], list[torch.Tensor]]) -> None:
    """Change what imitation takes for remembered where segments begin."""

    def changed(original, batches, rows):
        original(batches, rows)
        batches._states = dict(zip(batches._states, change(list(batches._states.values())), strict=True))

    plant.wrap(Sequences, "_store_states", changed)


@fault("imitation begins segments with the memories of others", "H15", "F118", flags=REMEMBERING)
def _(plant: Plants) -> None:
    _remembered(plant, _moved_on)


@fault("imitation begins segments with nothing remembered", "H15", "F118", flags=REMEMBERING)
def _(plant: Plants) -> None:
    _remembered(plant, lambda states: [torch.zeros_like(state) for state in states])


@fault("lessons after the first teach nothing", "F120", flags=DISTILLED)
def _(plant: Plants) -> None:
    plant.wrap(Distiller, "_learn", lambda original, distiller: distiller.updates or original(distiller))


@fault("the best epoch of imitation is told as another", "F61", "F118")
def _(plant: Plants) -> None:
    def changed(original, result, **fields):
        original(result, **fields | {"best_epoch": 1})

    plant.wrap(BCResult, "__init__", changed)
