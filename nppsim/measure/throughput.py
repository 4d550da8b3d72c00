"""Measure the throughput of the simulator on a workload; profile, compare and report results.

    result = measure(workload)                            # a dict for a JSON file
    on = side_by_side(workload, profile=True)             # overhead of profiling, and time of each phase of a step
    found = compare_with_baseline(result, load_result("before.json"))   # speed-up with interval
    print(benchmark_report("results"))

``measure`` always runs without profiling and shadow validation.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np

from nppsim.batch import BatchSimulator
from nppsim.io.files import table
from nppsim.io.reading import mismatch, read_json
from nppsim.measure.intervals import Estimate, mean_of_ratios, ratio_of_means
from nppsim.measure.machine import conditions, differences
from nppsim.measure.timing import Summary, TimingError, alternate, measure_rounds, summarise
from nppsim.measure.workload import Workload

FORMAT = "nppsim benchmark"
VERSION = 1
KEY = ("machine", "versions", "settings")  # parts that must be equal in two results that are compared
_SUMMARY = dict.fromkeys(("mean", "sd", "min", "max", "p50", "p95", "p99"), float)
_NEEDED = {  # required keys of a stored result, with the types of their values
    "machine": {"cpu": str, "cores": int, "system": str},
    "versions": {...: str},
    "settings": {"source": str, "observations": [str], "frame_skip": int},
    "phase": str,
    "date": str,
    "build": ({"commit": str, "changed_files": str}, {"source_digest": str}),
    "decisions_per_round": int,
    "decisions_per_s": float,
    "decisions_per_s_sd": float,
    "cv": float,
    "round_s": [float],
    "calibration": {"python": [float], "numba": [float]},
    "summary": _SUMMARY,
    "stability": str,
}
SMALLEST_SHARE = 0.01  # share of a step's time below which a phase is left out of tables


def measure(workload: Workload, *, phase: str = "") -> dict:
    """Time the rounds of a workload and return the result as a dictionary.

    phase: label of the result, such as "before".
    Keys: "format", "version", "phase", "date", the keys of ``conditions``, "settings" (``Workload.key``), "coverage"
    (``Workload.coverage``), "decisions_per_round" (sum over environments), "round_s" and "calibration" (lists with an
    entry per round), "summary" (``Summary`` of the rounds), "decisions_per_s" and its standard deviation
    "decisions_per_s_sd", "cv" and "stability" (see ``Summary``).
    """
    amount = workload.amount
    player = workload.player()
    player.play(amount.warmup)
    decisions = amount.iterations * amount.envs
    rounds = measure_rounds(lambda: player.play(amount.iterations), amount.rounds, decisions)
    summary = summarise(rounds.seconds)
    per_s, per_s_sd = summary.rate(decisions)
    return {
        "format": FORMAT,
        "version": VERSION,
        "phase": phase,
        "date": f"{datetime.now():%Y-%m-%d %H:%M:%S}",
        **conditions(),
        "settings": workload.key,
        "coverage": workload.coverage,
        "decisions_per_round": decisions,
        "round_s": rounds.seconds,
        "calibration": rounds.calibration_beside(),
        "summary": asdict(summary),
        "decisions_per_s": per_s,
        "decisions_per_s_sd": per_s_sd,
        "cv": summary.cv,
        "stability": summary.stability,
    }


def describe(result: Mapping) -> str:
    """Format a result as a few lines of text."""
    summary, loops = Summary(**result["summary"]), result["calibration"]
    times = "  ".join(
        f"{name} {getattr(summary, name):.4f}" for name in ("mean", "sd", "min", "max", "p50", "p95", "p99")
    )
    per_s, sd = result["decisions_per_s"], result["decisions_per_s_sd"]
    frames = result["settings"]["frame_skip"]
    return "\n".join([
        f"round time, s   {times}",
        f"decisions/s     {per_s:,.0f} ± {sd:,.0f} (sd), of {frames} frames each or fewer at an episode's end",
        f"stability       {result['stability']} (CV {summary.cv:.1%} over {summary.rounds} rounds)",
        f"calibration     Python loop {np.mean(loops['python']):.1f}, Numba loop {np.mean(loops['numba']):.0f} million/s",
        "entities        " + ", ".join(f"{name} {count}" for name, count in result["coverage"].items()),
    ])  # fmt: skip


# ---------------------------------------------------------------------------------------------------------------------
# Overhead of profiling and validation


class PhaseRow(NamedTuple):
    """Time of one phase of a step, in which each environment carries out one decision.

    share_of_step: share of the time of all phases.
    share_of_wall: share of (wall time * number of threads).
    """

    phase: str
    us_per_decision: float
    share_of_step: float
    share_of_wall: float


@dataclass(frozen=True)
class SideBySide:
    """Results of a workload with and without profiling or shadow validation, in alternating rounds.

    seconds, decisions, phases: totals of the rounds with profiling or validation.
    """

    ratio: Estimate  # time with / time without
    seconds: float
    decisions: int
    threads: int
    phases: Mapping[str, float]  # name -> nanoseconds, summed over threads
    simulator: BatchSimulator  # the simulator with profiling or validation

    def phase_rows(self) -> tuple[list[PhaseRow], list[str]]:
        """Return the result of the function ``phase_rows`` for these rounds."""
        return phase_rows(self.phases, self.decisions, self.seconds * self.threads)

    def profile_table(self) -> str:
        """Format the times of the phases as a table."""
        rows, left_out = self.phase_rows()
        header = ("phase", "µs per decision", "% of step", "% of wall time")

        def percent(share: float) -> str:
            return "" if math.isnan(share) else f"{share:.1%}"

        text = table(header, [(name, f"{us:.3f}", percent(step), percent(wall)) for name, us, step, wall in rows])
        if left_out:
            text += f"\nbelow {SMALLEST_SHARE:.0%} of the step, left out: {', '.join(left_out)}"
        return text


def side_by_side(workload: Workload, *, profile: bool = False, shadow: bool = False) -> SideBySide:
    """Play a workload in alternating rounds on two simulators, one of them with profiling or shadow validation."""
    amount = workload.amount
    with_it, without = workload.player(profile=profile, shadow=shadow), workload.player()
    for player in (with_it, without):
        player.play(amount.warmup)
        player.phases.clear()
    seconds_with, seconds_without = alternate(
        lambda: with_it.play(amount.iterations), lambda: without.play(amount.iterations), amount.rounds
    )
    return SideBySide(
        ratio=mean_of_ratios(seconds_with, seconds_without),
        seconds=sum(seconds_with),
        decisions=amount.iterations * amount.rounds * amount.envs,
        threads=amount.threads,
        phases=dict(with_it.phases),
        simulator=with_it.simulator,
    )


def phase_rows(phases: Mapping[str, float], decisions: int, core_seconds: float) -> tuple[list[PhaseRow], list[str]]:
    """Return the rows of a profile, and the names of omitted phases: their share of the step is below SMALLEST_SHARE.

    phases: name -> nanoseconds, summed over threads.  core_seconds: wall time times number of threads.
    The last two rows are the whole step and the time outside of the step (Python, waiting threads).  The share_of_step of
    the last row is NaN.
    Raises TimingError if nothing was timed.
    """
    step = sum(phases.values())
    if not step > 0:
        raise TimingError("no phase was timed; was the simulator built with profile=True?")

    def row(name: str, nanoseconds: float, share_of_step: float) -> PhaseRow:
        return PhaseRow(name, nanoseconds / 1e3 / decisions, share_of_step, nanoseconds / 1e9 / core_seconds)

    rows = [row(name, nanoseconds, nanoseconds / step) for name, nanoseconds in phases.items()]
    shown = [each for each in rows if each.share_of_step >= SMALLEST_SHARE]
    shown.append(row("the step, all phases", step, 1.0))
    shown.append(row("outside of the step", core_seconds * 1e9 - step, math.nan))
    return shown, [each.phase for each in rows if each.share_of_step < SMALLEST_SHARE]


# ---------------------------------------------------------------------------------------------------------------------
# Comparison and report


@dataclass(frozen=True)
class BaselineComparison:
    """Speed of a result relative to a baseline; ratios above 1 mean that the result is faster.

    speed_up: ratio of decisions/s.
    by_numba, by_python: the same ratio, corrected for the speed of the Numba or Python calibration loop.
    """

    speed_up: Estimate
    by_numba: Estimate
    by_python: Estimate

    def regressed(self, threshold: float) -> bool:
        """Return True if ``speed_up`` and ``by_numba``, with their intervals, both lie below ``1 - threshold``.

        threshold: tolerated slowdown; 0.1 means 10 %.
        """
        limit = 1 - threshold
        return all((e.value if e.high is None else e.high) < limit for e in (self.speed_up, self.by_numba))


def check_comparable(result: Mapping, baseline: Mapping, name: str) -> None:
    """Raise TimingError unless machine, versions and settings agree.  name: name of the baseline."""
    different = differences({part: result[part] for part in KEY}, baseline)
    if different:
        raise TimingError(
            f"{name} cannot be compared: {'; '.join(different)}. Measure it again under the same conditions"
        )


def compare_with_baseline(result: Mapping, baseline: Mapping, name: str = "the baseline") -> BaselineComparison:
    """Compare a result with a baseline.  Raises TimingError unless machine, versions and settings agree."""
    check_comparable(result, baseline, name)

    def work(record: Mapping, loop: str | None) -> np.ndarray:
        return np.multiply(record["round_s"], record["calibration"][loop] if loop else 1.0)

    return BaselineComparison(
        *(ratio_of_means(work(baseline, loop), work(result, loop)) for loop in (None, "numba", "python"))
    )


def comparison_table(result: Mapping, baselines: Mapping[str, Mapping]) -> str:
    """Format the comparisons with several baselines (name -> result) as a table."""
    header = ("baseline", "label", "commit", "then, decisions/s", "now", "speed-up", "by Numba loop", "by Python loop")
    rows = []
    for name, baseline in baselines.items():
        found = compare_with_baseline(result, baseline, name)
        figures = (f"{r['decisions_per_s']:,.0f}" for r in (baseline, result))
        rows.append(
            (name, baseline["phase"], _commit(baseline), *figures, found.speed_up, found.by_numba, found.by_python)
        )
    return table(header, rows)


def load_result(path: str | Path) -> dict:
    """Read a stored result.  Raises TimingError for an invalid file."""
    data = read_json(path, TimingError, "give a file written with --output")
    if not isinstance(data, dict) or data.get("format") != FORMAT or data.get("version") != VERSION:
        raise TimingError(f"{path}: not a benchmark result of version {VERSION}; measure again with --output")
    wrong = mismatch(data, _NEEDED)
    lists = [] if wrong else [data["round_s"], *data["calibration"].values()]
    if not wrong and not (
        len({len(values) for values in lists}) == 1 and all(v > 0 for values in lists for v in values)
    ):
        wrong = "round_s and calibration must be lists of equal length with numbers above 0"
    if wrong:
        raise TimingError(f"{path}: {wrong}; measure again with --output")
    return data


def benchmark_report(folder: str | Path) -> str:
    """Return a Markdown summary of the results in a folder, with one table per group of comparable results.

    Speed-ups are relative to the oldest result of the same table.  Other JSON files are listed as skipped.
    Raises TimingError if there are no results.
    """
    results, skipped = {}, []
    for file in sorted(Path(folder).glob("*.json")):
        try:
            results[file.name] = load_result(file)
        except TimingError as error:
            skipped.append(str(error))
    if not results:
        raise TimingError(f"{folder} holds no benchmark results; write some with --output {Path(folder) / 'NAME.json'}")
    groups: dict[str, dict[str, dict]] = {}
    for name, result in sorted(results.items(), key=lambda item: item[1]["date"]):
        groups.setdefault(json.dumps([result[part] for part in KEY], sort_keys=True), {})[name] = result
    parts = [f"# {len(results)} results, {len(groups)} {'kinds' if len(groups) > 1 else 'kind'} of measurement"]
    parts += [_group_report(group) for group in groups.values()]
    if skipped:
        parts.append("\n".join([f"skipped, {len(skipped)}:", *(f"- {reason}" for reason in skipped)]))
    return "\n\n".join(parts)


def _group_report(group: Mapping[str, Mapping]) -> str:
    """Describe the common conditions of comparable results (name -> result, oldest first), and list the results."""
    first = next(iter(group.values()))
    machine, settings = first["machine"], first["settings"]
    libraries = ", ".join(f"{name} {number}" for name, number in first["versions"].items())
    shown = ", ".join(f"{name} {value}" for name, value in settings.items() if name not in ("observations", "source"))
    header = ("file", "label", "date", "commit", "decisions/s", "sd", "CV", "p50, s", "p95, s", "p99, s")
    rows = []
    for name, result in group.items():
        figures = [f"{result[key]:,.0f}" for key in ("decisions_per_s", "decisions_per_s_sd")]
        figures.append(f"{result['cv']:.1%} {result['stability']}")
        figures += [f"{result['summary'][key]:.4f}" for key in ("p50", "p95", "p99")]
        figures += [f"{np.mean(result['calibration'][loop]):,.1f}" for loop in ("python", "numba")]
        figures.append("first" if result is first else str(compare_with_baseline(result, first).speed_up))
        rows.append((name, result["phase"], result["date"], _commit(result), *figures))
    return "\n\n".join([
        f"## {settings['source']}",
        f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}; {libraries}",
        f"{shown}, observations {' '.join(settings['observations'])}",
        table((*header, "Python, 10^6/s", "Numba, 10^6/s", "speed-up"), rows),
    ])  # fmt: skip


def _commit(result: Mapping) -> str:
    """Return the commit of a result, with a plus if files were changed; without a commit, the digest of the sources."""
    build = result["build"]
    if "commit" not in build:
        return build["source_digest"][:8]
    return build["commit"][:8] + ("+" if build["changed_files"] != "0" else "")
