"""Access to the tables in ``data.toml``."""

import tomllib
from pathlib import Path
from typing import Any


def read_data(table: str) -> dict[str, list[Any]]:
    """Return the rows of a table by name."""
    return tomllib.loads(Path(__file__).with_name("data.toml").read_text(encoding="utf-8"))[table]
