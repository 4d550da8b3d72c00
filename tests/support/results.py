"""Results on disk, changed by hand."""

import json
from pathlib import Path

from nppsim.files import write_json


def altered(path, out, **changes):
    """A copy of a stored result with other values at "part.name"."""
    data = json.loads(Path(path).read_text())
    for place, value in changes.items():
        *parts, last = place.split("__")
        target = data
        for part in parts:
            target = target[part]
        target[last] = value(target[last]) if callable(value) else value
    write_json(out, data)
    return str(out)
