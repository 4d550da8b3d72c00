"""A model card: what an agent is, what it learned from, what it reaches, what it cannot, who may use it; for people and hubs.

    text = card_text(Card(name="my-agent", policy=policy, fields=fields, agreement=agreement, ...))

All of it comes from the checkpoint, from ``results.json`` where that is given, and from the check of the export: nothing is
claimed that no file says.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from nppsim.actions import ACTION_NAMES, FRAMES_PER_SECOND
from nppsim.observe import layout
from nppsim.reading import mismatch, read_json
from rl.evaluation.agreement import Agreement
from rl.evaluation.results import STATS_SHAPE, ResultsError, Stats, format_table, load_results
from rl.policy.architectures import get_architecture
from rl.policy.policy import NppPolicy

AGENT, NETWORK = "agent.safetensors", "agent.onnx"
Tables = Mapping[str, Mapping[str, Stats] | None]
_EVALUATION = {"suites": {...: {...: STATS_SHAPE}}, "settings": {}}


@dataclass(frozen=True)
class Card:
    """What a card is about.

    name: of the agent, its heading.
    policy, fields: of the checkpoint (``rl.policy.checkpoint.load_policy``).
    agreement: of the exported network with it.
    results: name of a method -> its statistics per category; None: no results were given.
    licence: an SPDX identifier or another name; None if none was given.
    """

    name: str
    policy: NppPolicy
    fields: Mapping[str, Any]
    agreement: Agreement
    results: Tables | None
    licence: str | None


def methods_of(path: Path, architecture: str) -> Tables:
    """The tables in the ``results.json`` of an experiment or of ``scripts/evaluate.py``.

    architecture: of an experiment's, which is told.
    ResultsError: no such file, or nothing in it about this architecture.
    """
    data = read_json(path, ResultsError, "give the results.json of an experiment or of scripts/evaluate.py")
    if isinstance(data, dict) and "architectures" in data:
        return _of_experiment(load_results(path), path, architecture)
    if wrong := mismatch(data, _EVALUATION):
        raise ResultsError(f"{path}: no results of an experiment or of scripts/evaluate.py: {wrong}")
    return dict(data["suites"])


def _of_experiment(data: Mapping[str, Any], path: Path, architecture: str) -> Tables:
    known = data["architectures"]
    runs = {  # with several conditions, each is named behind the architecture
        f"{label}, seed {seed}".removeprefix(f"{architecture}, "): entry
        for label in known
        if label == architecture or label.startswith(f"{architecture}, ")
        for seed, entry in known[label]["seeds"].items()
    }
    if not runs:
        raise ResultsError(f"{path}: results of {', '.join(known)}, not of {architecture}: give those of the same run")
    found: dict[str, Any] = {}
    for name, entry in runs.items():
        before = entry.get("baselines", {})
        if wrong := mismatch(before, {...: ({...: STATS_SHAPE}, None)}, "baselines"):
            raise ResultsError(f"{path}: no results of an experiment: {wrong}")
        imitation = "imitation alone" if len(runs) == 1 else f"{name}, imitation alone"
        found |= {name: entry["suites"].get("test"), imitation: before.get("bc")}
    first: Mapping[str, Any] = next(iter(runs.values()))
    found["random play"] = first.get("baselines", {}).get("random")  # the same episodes in all
    return {name: tables for name, tables in found.items() if tables}


def published(config: object) -> object:
    """Settings as they may be shown to anybody: of absolute paths the last part alone, and nothing about uploads and files of
    settings."""
    if isinstance(config, Mapping):
        return {name: published(value) for name, value in config.items() if name not in ("upload", "sources")}
    if isinstance(config, list | tuple):
        return [published(value) for value in config]
    if isinstance(config, str | Path):
        text = str(config)
        absolute = PurePosixPath(text).is_absolute() or PureWindowsPath(text).is_absolute()
        return PureWindowsPath(text).name if absolute else text
    return config


def card_text(card: Card) -> str:
    """The card as Markdown, with the header that hubs read."""
    parts = (_header(card), _about(card), _data(card), _figures(card), _limits(card), _use(card), _licence(card))
    return "\n\n".join(parts) + "\n"


def _header(card: Card) -> str:
    lines = ["library_name: nppsim", "pipeline_tag: reinforcement-learning", "tags:"]
    lines += [f"- {tag}" for tag in ("reinforcement-learning", "imitation-learning", "n-plus-plus", "onnx")]
    licence = [f"license: {card.licence}"] if card.licence else []
    return "\n".join(["---", *licence, *lines, "---"])


def _about(card: Card) -> str:
    policy, skip = card.policy, card.fields["frame_skip"]
    known = get_architecture(policy.architecture)
    numbers = sum(parameter.numel() for parameter in policy.parameters())
    reads = ", ".join(f"`{key}`" for key in policy.observations)
    return (
        f"# {card.name}\n\nAn agent that plays levels of N++ in nppsim, an exact "
        f"re-implementation of the game's physics.\n\n"
        f"* Network: `{policy.architecture}` ({known.description}), {numbers:,} numbers.\n"
        f"* Reads: {reads}; raw, the normaliser is part of the network.\n"
        f"* Acts: one of {', '.join(ACTION_NAMES)} every {skip} frames ({FRAMES_PER_SECOND / skip:g} times a second)."
    )


def _data(card: Card) -> str:
    config = card.fields["config"]
    ppo, imitation = config.get("ppo") or {}, config.get("bc") or {}
    rows = [
        ("training levels", config.get("train_dataset")),
        ("demonstrations", config.get("replay_data_dir")),
        ("passes over them", imitation.get("epochs") if config.get("replay_data_dir") else None),
        ("decisions of PPO", ppo.get("total_timesteps")),
        ("minutes of PPO, at most", ppo.get("time_budget_minutes")),
        ("rewards", config.get("reward_preset") or (config.get("reward") or {}).get("preset")),
        ("seeds of the run", config.get("seeds")),
        ("statistics of the normaliser", f"{card.policy.statistics.count:,} observations"),  # type: ignore[union-attr]
    ]
    lines = [f"* {name}: {_plain(value)}" for name, value in rows if value not in (None, "", [], ())]
    return "\n".join(["## Data", "", *lines, "", "All settings: `config.json`."])


def _plain(value: object) -> str:
    shown = published(value)
    if isinstance(shown, list):
        return ", ".join(map(str, shown))
    return f"{shown:,}" if isinstance(shown, int | float) else str(shown)


def _figures(card: Card) -> str:
    if card.results is None:
        told = (
            "None were given with this card. To measure it: `python scripts/evaluate.py " + AGENT + " --levels LEVELS`."
        )
    else:
        told = format_table(card.results)
    return f"## Figures\n\n{told}\n\nThe exported network, when it was exported: {card.agreement}."


def _limits(card: Card) -> str:
    keys = card.policy.observations
    lines = [
        "It reads the exact state of the simulator, which the game does not hand out: it plays in nppsim, and what it did "
        "there can be watched in the game as a replay.",
        "On levels of other kinds or sizes than those it was trained and measured on, it may do anything.",
    ]
    if "foresight" in keys:
        lines.append(
            "It asks the simulator what each action leads to before it acts: without a simulator it cannot play."
        )
    if not {"player_frame", "global_view"} & set(keys):
        lines.append("It sees no picture: what its other observations leave out does not exist for it.")
    if card.policy.precision != "float32":
        lines.append(f"It was trained in {card.policy.precision}; {NETWORK} computes in float32, and rounds otherwise.")
    lines.append(
        f"Observations have the layout `{layout.fingerprint(keys)}`; versions of nppsim with another one refuse it."
    )
    return "\n".join(["## Limits", "", *(f"* {line}" for line in lines)])


def _use(card: Card) -> str:
    return f"""## Use

```bash
python scripts/evaluate.py {AGENT} --levels LEVELS --record-eval-videos   # in an installed wheel: nppsim evaluate
python scripts/evaluate.py {NETWORK} --levels LEVELS                      # the same with onnxruntime
```

```python
import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession("{NETWORK}", providers=["CPUExecutionProvider"])
# obs: raw observations of nppsim.BatchSimulator with the observations above, key -> [N, ...]
given = {{key: obs[key] for key in {list(card.policy.observations)!r}}}
given["action_mask"] = np.ones((len(given["{card.policy.observations[0]}"]), 6), bool)  # actions that may be taken
logits, value, action = session.run(["logits", "value", "action"], given)
```"""


def _licence(card: Card) -> str:
    told = card.licence or "None was given. Whoever publishes this names one (`license:` at the top)."
    return f"## Licence\n\n{told}\n\nN++ is a game by Metanet Software, who have nothing to do with this."
