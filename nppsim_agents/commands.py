"""What ``nppsim train``, ``nppsim evaluate`` and so on call (entry points of the group ``nppsim.commands``).

Each takes the words after its name and returns the exit status.
"""

import importlib.util
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from nppsim import errors
from nppsim.errors import UserError

Command = Callable[[Sequence[str]], int]

_HERE = Path(__file__).resolve().parent
IN_WHEEL = (_HERE / "scripts").is_dir()  # else in a checkout
_PLACE = _HERE if IN_WHEEL else _HERE.parent


def _program(file: str) -> Command:
    """``main`` of a program of the project, which is loaded when it is called."""

    def command(argv: Sequence[str]) -> int:
        path = _PLACE / file
        spec = importlib.util.spec_from_file_location(f"nppsim_agents.program.{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        program = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(program)
        return program.main(list(argv))

    return command


train = _program("scripts/train_and_compare.py")
pretrain = _program("scripts/pretrain_bc.py")
evaluate = _program("scripts/evaluate.py")
export = _program("scripts/export.py")
solve = _program("scripts/solve.py")
doctor = _program("scripts/doctor.py")
compare_runs = _program("scripts/compare_runs.py")
ab_compare = _program("scripts/ab_compare.py")
sweep = _program("scripts/sweep.py")
generate_levels = _program("scripts/generate_levels.py")
make_demonstrations = _program("scripts/make_demonstrations.py")
demonstrations = _program("bc/__main__.py")
hardware = _program("hardware/__main__.py")


def data(argv: Sequence[str]) -> int:
    """Copy the shipped levels, demonstrations and agent to a new folder: ``nppsim data FOLDER``."""

    def job() -> None:
        if len(argv) != 1 or argv[0].startswith("-"):
            raise UserError("give the folder to copy levels, demonstrations and an agent to: nppsim data FOLDER")
        folder = Path(argv[0])
        if folder.exists():
            raise UserError(f"{folder} exists already; give the name of a new folder")
        shutil.copytree(_PLACE / "datasets", folder)
        print(f"{folder}: {', '.join(sorted(part.name for part in folder.iterdir() if part.is_dir()))}")

    return errors.run(job)
