"""The build; all that is fixed stands in pyproject.toml.

A checkout has the packages ``rl``, ``bc`` and ``hardware``: short names, fit for a project and not for everybody's
site-packages.  A wheel gets them, the scripts and the data as parts of ``nppsim_agents``, with their imports rewritten.
Editable installs take the folders as they are.
"""

import re
import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.egg_info import egg_info

NAMESPACE = "nppsim_agents"
MOVED = ("rl", "bc", "hardware")
BESIDE = ("scripts", "datasets")
_NAMES = "|".join(MOVED)


def rewritten(text: str) -> str:
    """A module's text, importing the moved packages from where the wheel has them."""
    text = re.sub(rf"^(\s*)from ({_NAMES})(?=[. ])", rf"\1from {NAMESPACE}.\2", text, flags=re.MULTILINE)
    text = re.sub(rf"^(\s*)import ({_NAMES})$", rf"\1from {NAMESPACE} import \2", text, flags=re.MULTILINE)
    text = re.sub(
        rf"^(\s*)import ((?:{_NAMES})\.[\w.]+) as ", rf"\1import {NAMESPACE}.\2 as ", text, flags=re.MULTILINE
    )
    text = re.sub(rf'(import_module\(f?")({_NAMES})\.', rf"\1{NAMESPACE}.\2.", text)
    return re.sub(
        rf"^(\s*)import ({_NAMES})\.([\w.]+)$",
        rf"\1import {NAMESPACE}.\2.\3\n\1from {NAMESPACE} import \2",
        text,
        flags=re.MULTILINE,
    )


class BuildWheel(build_py):
    """Copies the packages, and in a wheel moves them into the namespace."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        library = Path(self.build_lib)
        target = library / NAMESPACE
        for name in MOVED:
            shutil.rmtree(target / name, ignore_errors=True)
            shutil.move(library / name, target / name)
        for name in BESIDE:
            shutil.copytree(
                name, target / name, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", "*.sh", ".lock")
            )
        for name in (*MOVED, "scripts"):
            for path in (target / name).rglob("*.py"):
                path.write_text(rewritten(path.read_text(encoding="utf-8")), encoding="utf-8")


class EggInfo(egg_info):
    """Names the top-level packages of the wheel."""

    def run(self) -> None:
        super().run()
        names = Path(self.egg_info) / "top_level.txt"
        kept = [name for name in names.read_text().split() if name not in MOVED]
        names.write_text("\n".join(kept) + "\n")


setup(cmdclass={"build_py": BuildWheel, "egg_info": EggInfo})
