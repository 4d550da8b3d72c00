"""Progress bar on stderr."""

import sys
from collections.abc import Iterable
from typing import Any

from nppsim.errors import MissingPackageError, import_optional

MANY = 10_000  # from this number of items on, a bar abbreviates counts (12k, 3.4M)


def progress_bar(
    items: Iterable | None = None, title: str = "playing back", *, total: int | None = None, unit: str = "it"
) -> Any:
    """Return a tqdm bar, which disappears when it is complete; without tqdm, ``items`` or, if it is None, an error.

    items: iterable to wrap; None: the caller advances the bar with its ``update``.
    title: text before the bar.
    total: number of items, for iterables without a length.
    unit: singular noun for an item.
    Raises MissingPackageError without ``items`` and tqdm.
    """
    try:
        tqdm = import_optional("tqdm", "train").tqdm
    except MissingPackageError:
        if items is None:
            raise
        return items
    tqdm.monitor_interval = 0  # no monitoring thread
    large = total is not None and total >= MANY
    silent = sys.stderr is None or not sys.stderr.isatty()
    return tqdm(items, title, total, leave=False, unit=unit, unit_scale=large, disable=silent)
