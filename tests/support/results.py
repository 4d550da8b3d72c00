"""Artificial results: records of episodes, and result files with changed values."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from nppsim.io.files import write_json


def episode(category="simple", outcome="won", frames=10, ret=1.0, level_index=0):
    """An episode on a level without content."""
    from rl.evaluation.results import EpisodeRecord  # not at the top: tests of the simulator import this file, too

    level = SimpleNamespace(name="l", fingerprint=f"level {level_index}", support="exact")
    inputs = np.zeros(frames, np.uint8)
    return EpisodeRecord(level_index, "l", category, level, inputs, outcome, frames, frames // 4, ret, 2, 100.0)


def episodes(wins, levels=4):
    """One episode on each of some levels, the first ``wins`` of them won."""
    return [episode(level_index=i, outcome="won" if i < wins else "died") for i in range(levels)]


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


PLAN = {
    "settings": {"num_envs": {"value": 512, "source": "default", "note": ""}}, "batch_size": 8192, "updates": 489,
    "host_bytes": 1.8e9, "host_budget": 20.2e9, "device_bytes": 0, "device_budget": 0, "warnings": [], "gpus": 0,
}  # fmt: skip
# Entry of a run without imitation and final evaluation in results.json.
BARE = {
    "title": "vision_free", "suites": {"test": {}}, "baselines": {"random": None, "bc": None}, "delivered": "",
    "checklist": [], "doctor": None, "comparisons": [], "bc": None, "transfer": None,
    "speed": {"decisions_per_s": 51234.5, "share": {}}, "plan": PLAN, "wall_time_s": 611.5, "folder": "none", "films": [],
    "events": [], "settings": {}, "train_success": None,
}  # fmt: skip


def architectures(**runs):
    """Return "architectures" of results.json with one seed per label.  runs: label -> entry of a run."""
    return {label: {"seeds": {"0": entry | {"title": label}}} for label, entry in runs.items()}
