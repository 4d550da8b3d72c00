"""Puts the folders ``scripts`` and ``datasets`` into the wheel, as parts of ``nppsim_agents``; all else stands in
pyproject.toml.  The packages keep the names that they have in a checkout."""

from setuptools import find_packages, setup

BESIDE = {"nppsim_agents.scripts": "scripts", "nppsim_agents.datasets": "datasets"}

setup(
    packages=[*find_packages(include=["nppsim*", "bc*", "rl*", "hardware*"]), *BESIDE],
    package_dir=BESIDE,
)
