"""Commands that ``tests.chaos.test_faults`` runs at tiny size, and their input."""

import re
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bc.demonstrations import find_replays
from nppsim.levels.level_set import LevelSet
from nppsim.replays.replay_set import ReplaySet, ReplayWriter

ROOT = Path(__file__).parents[2]
AGENT = "agent.safetensors"  # in the input


@dataclass(frozen=True)
class Target:
    """A command to be attacked.

    command: after ``python``; {world} is the folder of its input, {out} that of its output.
    statuses: exit statuses of success; 1 reports defects of the input.
    content: function of {out} whose value must equal an undisturbed run's; None: only names and number of files are compared.
    variables: environment variables.
    reads: patterns of input files whose headers are corrupted in turn; those in {out} are from an earlier call.
    again: command that resumes an interrupted run, if it is another one; {run} is the run's folder in {out}.
    refuses_again: part of the error message if a second call finds complete output, or files of the user.
    alone: whether a second process on the same folder is refused (with ``again``: one that resumes the same run).
    """

    command: str
    statuses: tuple[int, ...] = (0,)
    content: Callable[[Path], object] | None = None
    variables: tuple[tuple[str, str], ...] = ()
    reads: tuple[str, ...] = ()
    again: str = ""
    refuses_again: str = ""
    alone: bool = False

    @property
    def writes(self) -> bool:
        """True if the command writes files."""
        return "{out}" in self.command + str(self.variables)


def _levels_of(out: Path) -> list[str]:
    return [entry.fingerprint for entry in LevelSet.open(out / "set").entries]


def _runs_of(out: Path) -> list[bytes]:
    with ReplaySet(out / "runs" / "simplest.h5") as replays:
        return [replay.inputs.tobytes() for replay in replays]


TARGETS = {
    "levels": Target(
        "scripts/generate_levels.py --category simplest --count 20 --seed 7 --workers 1 --out {out}/set",
        content=_levels_of,
        reads=("{out}/set/index.json",),
        alone=True,
    ),
    "demonstrations": Target(
        "scripts/make_demonstrations.py --levels {world}/levels --workers 1 --out {out}/runs",
        statuses=(0, 1),
        content=_runs_of,
        reads=("{world}/levels/index.json", "{world}/levels/*/*.map", "{out}/runs/*.h5"),
        alone=True,
    ),
    "load": Target("-m nppsim replays {world}/demonstrations", statuses=(0, 1), reads=("{world}/demonstrations/*.h5",)),
    "imitation": Target(
        "scripts/pretrain_bc.py --architecture vision_free --replay-data-dir {world}/demonstrations --epochs 2 "
        "--output-dir {out}",
        reads=("{world}/demonstrations/*.h5", "{out}/cache/*.h5"),
    ),
    "export": Target(
        "-m bc minari-export {world}/demonstrations --source planner --author A --author-email a@b "
        "--code-permalink https://example.org",
        variables=(("MINARI_DATASETS_PATH", "{out}"),),
        reads=("{world}/demonstrations/*.h5",),
        refuses_again="exists already",
    ),
    "onnx": Target(
        "scripts/export.py {world}/agent.safetensors --onnx {out}/agent.onnx --hub {out}/hub",
        reads=("{world}/agent.safetensors",),
        refuses_again="is not empty; give a new folder",
    ),
    "report": Target(
        "-m bc report {world}/demonstrations --levels {world}/levels",
        statuses=(0, 1),
        reads=("{world}/demonstrations/*.h5", "{world}/levels/index.json", "{world}/levels/*/*.map"),
    ),
    "training": Target(
        "scripts/train_and_compare.py --experiment-name a --architectures vision_free --train-dataset {world}/levels "
        "--test-dataset {world}/test --replay-data-dir {world}/demonstrations --bc-epochs 1 --total-timesteps 4000 "
        "--num-envs 16 --eval-freq 0 --save-freq 1000 --num-eval-episodes 4 --output-dir {out}",
        reads=("{world}/demonstrations/*.h5", "{world}/*/index.json", "{world}/*/*/*.map", "{out}/cache/*.h5"),
        again="scripts/train_and_compare.py --resume-from {run}",
        alone=True,
    ),
    "evaluation": Target(
        "scripts/evaluate.py {world}/agent.safetensors --levels {world}/test --output-dir {out} --record-eval-videos "
        "--max-videos-per-category 1 --video-fps 10",
        reads=("{world}/agent.safetensors", "{world}/test/index.json", "{world}/test/*/*.map"),
    ),
    "search": Target(
        "scripts/solve.py {world}/test --agent {world}/agent.safetensors --workers 1 --budget 20000 --polish 0 "
        "--films 0 --out {out}/solved --demonstrations {out}/runs",
        statuses=(0, 1),
        reads=("{world}/agent.safetensors", "{world}/test/index.json", "{world}/test/*/*.map"),
        refuses_again="is not empty; give a new folder",
        alone=True,
    ),
}


def make_world(folder: Path) -> Path:
    """Input of the commands: a few shipped levels of one category, demonstrations, and a trained agent."""
    for name, shipped, count in (("levels", "train", 8), ("test", "test", 2)):
        levels = LevelSet.open(ROOT / "datasets" / shipped)
        chosen = levels.indices("simplest")[:count]
        LevelSet.write(folder / name, [(levels[i], levels.entries[i]) for i in chosen])
    with ReplayWriter(folder / "demonstrations" / "simplest.h5") as writer:
        for file in find_replays(ROOT / "datasets" / "demonstrations" / "simplest.h5")[:8]:
            writer.append(file.replay, category="simplest")
    shutil.copy(ROOT / "datasets" / "agents" / "vision_free_foresight.safetensors", folder / AGENT)
    return folder


def run_of(out: Path) -> Path | None:
    """Return the newest training below ``out`` that can be resumed."""
    return max((path.parent for path in out.glob("*/config.json")), default=None)


def names_of(out: Path) -> Counter[str]:
    """Count the file names below ``out``, with times, numbers and hashes replaced; hidden and temporary files are skipped."""
    names = (path.relative_to(out) for path in out.rglob("*") if path.is_file() and path.suffix != ".tmp")
    shown = (str(name) for name in names if not any(part[0] == "." for part in name.parts))
    return Counter(re.sub(r"(?<=tfevents\.).+|[0-9a-f]{8,}|(?<![a-z.])\d+", "#", name) for name in shown)
