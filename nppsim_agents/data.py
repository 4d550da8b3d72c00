"""The command ``nppsim data FOLDER``: copies the shipped levels, demonstrations and agent to a new folder."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import nppsim_agents
from nppsim import errors
from nppsim.errors import UserError


def main(argv: Sequence[str]) -> int:
    """Copy the shipped data to a new folder; return the exit status: 0, or 2 for bad input."""

    def job() -> None:
        if len(argv) != 1 or argv[0].startswith("-"):
            raise UserError("give the folder to copy levels, demonstrations and an agent to: nppsim data FOLDER")
        folder = Path(argv[0])
        if folder.exists():
            raise UserError(f"{folder} exists already; give the name of a new folder")
        if nppsim_agents.DATASETS is None:
            raise UserError(f"{nppsim_agents.__path__[0]}: no folder datasets here; install the project again")
        shutil.copytree(nppsim_agents.DATASETS, folder)
        print(f"{folder}: {', '.join(sorted(part.name for part in folder.iterdir() if part.is_dir()))}")

    return errors.run(job)
