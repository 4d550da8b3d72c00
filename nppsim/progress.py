"""Progress bar for long operations, shown on terminals only."""

import sys
from collections.abc import Iterable
from typing import Any

from nppsim.errors import needed

MANY = 10_000  # totals from here on are shown in thousands and millions


def progress_bar(
    items: Iterable | None = None, title: str = "playing back", *, total: int | None = None, unit: str = "it"
) -> Any:
    """Return a tqdm bar that wraps ``items`` or is advanced by its ``update``, and disappears when it is done.

    title: text before the bar.
    total: number of items, for iterables without a length.
    unit: singular noun of an item.
    Raises MissingPackageError without tqdm.
    """
    tqdm = needed("tqdm", "train").tqdm
    tqdm.monitor_interval = 0  # no monitoring thread
    large = total is not None and total >= MANY
    silent = sys.stderr is None or not sys.stderr.isatty()
    return tqdm(items, title, total, leave=False, unit=unit, unit_scale=large, disable=silent)
