"""One progress bar for everything that takes long: shown on a terminal, silent elsewhere."""

import sys
from collections.abc import Iterable
from typing import Any

from nppsim.errors import needed

MANY = 10_000  # from here on a bar counts in thousands and millions


def progress_bar(
    items: Iterable | None = None, title: str = "playing back", *, total: int | None = None, unit: str = "it"
) -> Any:
    """A bar of tqdm: wraps ``items``, or is moved by its ``update``; gone from the screen when it is done.

    title: in front of it.
    total: number of items, where they do not know it.
    unit: what is counted, in the singular; "it" for items of any kind.
    Raises MissingPackageError without tqdm.
    """
    tqdm = needed("tqdm", "train").tqdm
    tqdm.monitor_interval = 0  # no thread of its own beside the bar, shown or not
    large = total is not None and total >= MANY
    silent = sys.stderr is None or not sys.stderr.isatty()
    return tqdm(items, title, total, leave=False, unit=unit, unit_scale=large, disable=silent)
