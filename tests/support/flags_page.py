"""The text of docs/flags.md; ``python tests/support/flags_page.py`` writes it."""

import re
from collections import Counter, defaultdict

from nppsim.settings import Setting
from rl.config.command_line import ACTIONS, FIRST_PAGE, REFUSED, grouped
from rl.config.conditions import described

from places import ROOT

PAGE = ROOT / "docs" / "flags.md"
_PREFACE = """# Flags of `scripts/train_and_compare.py`

A flag that has no effect is an error: one without the flag that it *needs*, one that another flag disables
(`--lr-end-share` with `--no-schedules`), or one under *Refused* with another value than its default. Exceptions:
evaluation flags in a run without evaluations, and `--returns-from current` with `--n-epochs 1`. Which source wins:
[configuration.md](configuration.md#sources-and-precedence).

A *decision* is one action of `--frame-skip` frames (1/60 s). Where the default is a phrase, it describes the value `none`.
"""

_OTHER_NAMES = """
## Other command lines, other names

Both names are accepted:

| flag | also | where |
|---|---|---|
"""
_SEED_LINES = (
    "ab_compare.py sweep.py evaluate.py pretrain_bc.py generate_levels.py make_demonstrations.py perf_benchmark.py "
    "solve.py"
)
_OUTPUT_LINES = "evaluate.py ab_compare.py sweep.py generate_levels.py make_demonstrations.py solve.py"
_SYNONYMS = (  # flag, its other name, the command lines that have both
    (
        "seeds",
        "seed",
        [*f"train_and_compare.py {_SEED_LINES} profile_multi_config.py".split(), "nppsim generate", "nppsim plan"],
    ),
    ("output-dir", "out", f"train_and_compare.py pretrain_bc.py {_OUTPUT_LINES}".split()),
    ("out", "output", ["perf_benchmark.py"]),
    ("out", "json", ["profile_multi_config.py"]),
    ("architectures", "architecture", ["train_and_compare.py", "pretrain_bc.py", "hardware_plan.py"]),
    ("categories", "category", ["generate_levels.py"]),
    ("test-dataset", "levels", ["evaluate.py"]),
    ("replay-data-dir", "replays", ["perf_benchmark.py"]),
    ("mirror-demonstrations", "mirror", ["bc check"]),
    ("bc-epochs", "epochs", ["pretrain_bc.py"]),
    ("bc-batch-size", "batch-size", ["pretrain_bc.py"]),
    ("bc-learning-rate", "learning-rate", ["pretrain_bc.py"]),
    ("bc-class-weight-power", "class-weight-power", ["pretrain_bc.py"]),
    ("episodes-per-category", "num-eval-episodes", ["pretrain_bc.py"]),
    ("deterministic-eval", "deterministic", ["train_and_compare.py", "evaluate.py", "pretrain_bc.py"]),
    ("record-eval-videos", "record-videos", ["train_and_compare.py", "evaluate.py"]),
    ("hardware-profile", "profile", ["hardware_plan.py"]),
    ("num-envs", "envs", ["perf_benchmark.py", "profile_multi_config.py"]),
)
_OTHER_NOTES = """
Only `train_and_compare.py`, `ab_compare.py` and `sweep.py` take several seeds. `train_and_compare.py`, `evaluate.py` and
`pretrain_bc.py` create a folder in `--output-dir`; the others write to `--output-dir` itself. Outside `pretrain_bc.py`,
`--num-eval-episodes` are spread over all categories. In `evaluate.py`, `--stochastic` is `--no-deterministic-eval`.
`--workers` and `--cluster`: [long_runs.md](long_runs.md#many-levels-on-a-ray-cluster).
"""


def flags_document() -> str:
    """The text of docs/flags.md."""
    lines = [_PREFACE.rstrip()]
    lines += ["", "## Print and exit", "", "| flag | meaning |", "|---|---|"]
    lines += [f"| `--{flag}` | {meaning} |" for flag, meaning in ACTIONS.items()]
    for first, heading in ((True, ""), (False, ": more")):
        for title, all_flags in grouped().items():
            flags = [flag for _, flag in all_flags if (flag.flag in FIRST_PAGE) == first]
            if not flags:
                continue
            common = _common_need(flags)
            lines += ["", f"## {title[0].upper()}{title[1:]}{heading}", ""]
            lines += [f"{_need_of_most(flags, common)}\n"] if common else []
            lines += ["| flag | default | meaning |", "|---|---|---|", *(_row(flag, common) for flag in flags)]
    lines += ["", "## Refused", "", "| flag | default | refused with |", "|---|---|---|"]
    refused = defaultdict(list)
    for flag in REFUSED.values():
        refused[flag.refusal].append(flag)
    lines += [
        f"| {', '.join(map(_spelling, flags))} | {', '.join(flag.shown_default for flag in flags)} | {reason} |"
        for reason, flags in refused.items()
    ]
    rows = [
        f"| `--{flag}` | `--{other}` | {', '.join(f'`{one}`' for one in where)} |" for flag, other, where in _SYNONYMS
    ]
    return "\n".join([*lines, _OTHER_NAMES.rstrip("\n"), *rows, _OTHER_NOTES])


def _common_need(flags: list[Setting]) -> str:
    """Return the flag that more than half of these need; "" if there is none."""
    need, count = Counter(map(_needed, flags)).most_common(1)[0]
    return need if 2 * count > len(flags) else ""


def _need_of_most(flags: list[Setting], need: str) -> str:
    free = ", ".join(f"`{flag.option}`" for flag in flags if not _needed(flag) and flag.flag not in need)
    unless = "Unless a row names another flag, all" if set(map(_needed, flags)) - {need, ""} else "All"
    return f"{unless}{f' but {free}' if free else ''} *need* {need}."


def _row(flag: Setting, common: str) -> str:
    """One line of a table; ``common`` is a need that the text above the table states."""
    default, meaning = flag.shown_default, flag.help
    in_words = re.fullmatch(r"(.*?)(?:; | \(|\. )[Dd]efault: ([^()]*)\)?", meaning)
    if in_words and default == "none":
        meaning, default = in_words.groups()
    choices = f"; one of {', '.join(flag.choices)}" if flag.choices else ""
    aliases = f"; also {', '.join(f'`--{name}`' for name in flag.aliases)}" if flag.aliases else ""
    needs = f" (*needs* {_needed(flag)})" if _needed(flag) not in ("", common) else ""
    return f"| {_spelling(flag)} | {default} | {meaning}{choices}{aliases}{needs} |"


def _needed(flag: Setting) -> str:
    """Return the flags that this one needs; "" if none, or if only another flag disables it."""
    opposites = map(described, flag.needs.split(" and ")) if flag.needs else ()
    needed = (text.removeprefix("without ") for text in opposites if text.startswith("without "))
    return " and ".join(" or ".join(f"`{name}`" for name in text.split(" or ")) for text in needed)


def _spelling(flag: Setting) -> str:
    if flag.kind is bool and flag.switch:
        return f"`{flag.option}`, `--no-{flag.flag}`"
    return f"`{flag.option} {flag.placeholder}".rstrip() + (" ...`" if flag.many else "`")


if __name__ == "__main__":
    PAGE.write_text(flags_document(), encoding="utf-8")
