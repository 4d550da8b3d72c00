"""Scripts and shipped data of an installed nppsim."""

from pathlib import Path

_HERE = Path(__file__).resolve().parent
DATASETS = next((path for path in (_HERE / "datasets", _HERE.parent / "datasets") if path.is_dir()), None)
"""Folder of the shipped levels, demonstrations and agent, in a wheel or a checkout; None if it is missing."""

if not (_HERE / "scripts").is_dir():  # a checkout: ``nppsim_agents.scripts`` is the folder beside this package
    __path__.append(str(_HERE.parent))
