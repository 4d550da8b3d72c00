"""Measure the throughput of the simulator on a workload; profile, compare and report results.

    result = measure(workload)                            # a dict for a JSON file
    profiled = side_by_side(workload, profile=True)       # overhead of profiling, and time of each phase of a step
    speed_up = compare(result, load_result("before.json"))["speed-up"]      # with interval
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
from nppsim.measure.timing import TimingError, alternate, measure_rounds, relative_to_loops, summarise
from nppsim.measure.workload import Workload

FORMAT = "nppsim benchmark"
VERSION = 2
KEY = ("machine", "versions", "settings")  # parts that must be equal in two results that are compared
STATISTICS = ("mean", "sd", "min", "max", "p50", "p95", "p99")
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
    "relative": {"python": float, "numba": float},
    "summary": dict.fromkeys(STATISTICS, float),
    "stability": str,
}
SMALLEST_SHARE = 0.01  # share of a step's time below which a phase is left out of tables


def measure(workload: Workload, *, phase: str = "") -> dict:
    """Time the rounds of a workload and return the result as a dictionary.

    phase: label of the result, such as "before".
    Keys: "format", "version", "phase", "date", the keys of ``conditions``, "settings" (``Workload.key``), "coverage"
    (``Workload.coverage``), "decisions_per_round" (sum over environments), "round_s" and "calibration" (lists with an
    entry per round), "relative" (``relative_to_loops``), "summary" (``Summary`` of the rounds), "decisions_per_s" and its
    standard deviation "decisions_per_s_sd", "cv" and "stability" (see ``Summary``).
    """
    settings = workload.settings
    player = workload.player()
    player.play(settings.warmup)
    decisions = settings.iterations * settings.envs
    rounds = measure_rounds(lambda: player.play(settings.iterations), settings.rounds)
    summary = summarise(rounds.seconds)
    per_s = decisions / summary.mean
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
        "calibration": rounds.calibration,
        "relative": relative_to_loops([decisions / s for s in rounds.seconds], rounds.calibration),
        "summary": asdict(summary),
        "decisions_per_s": per_s,
        "decisions_per_s_sd": per_s * summary.cv,
        "cv": summary.cv,
        "stability": summary.stability,
    }


def describe(result: Mapping) -> str:
    """Format a result as a few lines of text."""
    loops = result["calibration"]
    times = "  ".join(f"{name} {result['summary'][name]:.4f}" for name in STATISTICS)
    per_s, sd = result["decisions_per_s"], result["decisions_per_s_sd"]
    frames = result["settings"]["frame_skip"]
    return "\n".join([
        f"round time, s   {times}",
        f"decisions/s     {per_s:,.0f} ± {sd:,.0f} (sd), of {frames} frames each or fewer at an episode's end",
        f"stability       {result['stability']} (CV {result['cv']:.1%} over {len(result['round_s'])} rounds)",
        f"calibration     Python loop {np.mean(loops['python']):.1f}, Numba loop {np.mean(loops['numba']):.0f} million/s",
        "entities        " + ", ".join(f"{name} {count}" for name, count in result["coverage"].items()),
    ])  # fmt: skip


# ---------------------------------------------------------------------------------------------------------------------
# Overhead of profiling and validation


class PhaseRow(NamedTuple):
    """Time of one phase of a step, in which each environment carries out one decision.

    share_of_step: share of the time of all phases; NaN for the time outside of the step.
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

    def phase_rows(self) -> list[PhaseRow]:
        """Return the rows of a profile; the last two are the whole step and the time outside of it (Python, waiting).

        Phases are timed in a sample of the environments.  If the sample was interrupted by other programs, the estimate
        can exceed the wall time; all phases are then scaled down to the wall time.
        Raises TimingError if nothing was timed.
        """
        measured, wall = sum(self.phases.values()), 1e9 * self.seconds * self.threads
        if not measured > 0:
            raise TimingError("no phase was timed; was the simulator built with profile=True?")
        scale = min(1.0, wall / measured)

        def row(name: str, nanoseconds: float, share_of_step: float) -> PhaseRow:
            return PhaseRow(name, nanoseconds / 1e3 / self.decisions, share_of_step, nanoseconds / wall)

        rows = [row(name, scale * nanoseconds, nanoseconds / measured) for name, nanoseconds in self.phases.items()]
        step = scale * measured
        return [*rows, row("the step, all phases", step, 1.0), row("outside of the step", wall - step, math.nan)]

    def profile_table(self) -> str:
        """Format the times of the phases as a table, without phases below SMALLEST_SHARE of the step."""
        rows = self.phase_rows()
        small = [row.phase for row in rows if row.share_of_step < SMALLEST_SHARE]
        shown = [
            (name, f"{us:.3f}", "" if math.isnan(step) else f"{step:.1%}", f"{wall:.1%}")
            for name, us, step, wall in rows
            if name not in small
        ]
        text = table(("phase", "µs per decision", "% of step", "% of wall time"), shown)
        return text + (f"\nbelow {SMALLEST_SHARE:.0%} of the step, left out: {', '.join(small)}" if small else "")


def side_by_side(workload: Workload, *, profile: bool = False, shadow: bool = False) -> SideBySide:
    """Play a workload in alternating rounds on two simulators, one of them with profiling or shadow validation."""
    settings = workload.settings
    with_it, without = workload.player(profile=profile, shadow=shadow), workload.player()
    for player in (with_it, without):
        player.play(settings.warmup)
        player.phases.clear()
    seconds_with, seconds_without = alternate(
        lambda: with_it.play(settings.iterations), lambda: without.play(settings.iterations), settings.rounds
    )
    return SideBySide(
        ratio=mean_of_ratios(seconds_with, seconds_without),
        seconds=sum(seconds_with),
        decisions=settings.iterations * settings.rounds * settings.envs,
        threads=settings.threads,
        phases=dict(with_it.phases),
        simulator=with_it.simulator,
    )


# ---------------------------------------------------------------------------------------------------------------------
# Comparison and report


def check_comparable(result: Mapping, baseline: Mapping, name: str) -> None:
    """Raise TimingError unless machine, versions and settings agree.  name: name of the baseline."""
    different = differences({part: result[part] for part in KEY}, baseline)
    if different:
        raise TimingError(
            f"{name} cannot be compared: {'; '.join(different)}. Measure it again under the same conditions"
        )


def compare(result: Mapping, baseline: Mapping) -> dict[str, Estimate]:
    """Return ratios of decisions/s, above 1 if the result is faster than a baseline of the same machine.

    Keys: "speed-up", and the same corrected by the speed of a calibration loop: "by Numba loop", "by Python loop".
    """

    def work(record: Mapping, loop: str) -> np.ndarray:
        return np.multiply(record["round_s"], record["calibration"][loop] if loop else 1.0)

    loops = {"speed-up": "", "by Numba loop": "numba", "by Python loop": "python"}
    return {name: ratio_of_means(work(baseline, loop), work(result, loop)) for name, loop in loops.items()}


def has_regressed(result: Mapping, baseline: Mapping, threshold: float) -> bool:
    """Return True if speed-up and speed-up by Numba loop, with their intervals, both lie below ``1 - threshold``."""
    ratios = compare(result, baseline)
    highs = [ratio.value if ratio.high is None else ratio.high for ratio in ratios.values()]
    return max(highs[:2]) < 1 - threshold


def comparison_table(result: Mapping, baselines: Mapping[str, Mapping]) -> str:
    """Format the comparisons with several baselines (name -> result) as a table."""
    rows, ratios = [], {name: compare(result, baseline) for name, baseline in baselines.items()}
    for name, baseline in baselines.items():
        figures = (f"{r['decisions_per_s']:,.0f}" for r in (baseline, result))
        rows.append((name, baseline["phase"], _commit(baseline), *figures, *ratios[name].values()))
    names = next(iter(ratios.values()))
    return table(("baseline", "label", "commit", "then, decisions/s", "now", *names), rows)


def load_result(path: str | Path) -> dict:
    """Read a stored result.  Raises TimingError for an invalid file."""
    data = read_json(path, TimingError, "give a file written with --output")
    if not isinstance(data, dict) or data.get("format") != FORMAT or data.get("version") != VERSION:
        raise TimingError(f"{path}: not a benchmark result of version {VERSION}; measure again with --output")
    wrong = mismatch(data, _NEEDED)
    if not wrong:
        lists = [data["round_s"], *data["calibration"].values()]
        positive = all(v > 0 for values in (*lists, data["relative"].values()) for v in values)
        if len({len(values) for values in lists}) > 1 or not positive:
            wrong = "round_s and calibration must be lists of equal length, and these and relative numbers above 0"
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
            skipped.append(f"- {error}")
    if not results:
        raise TimingError(f"{folder}: no benchmark results; write some with --output {Path(folder) / 'NAME.json'}")
    groups: dict[str, dict[str, dict]] = {}
    for name, result in sorted(results.items(), key=lambda item: item[1]["date"]):
        groups.setdefault(json.dumps([result[part] for part in KEY], sort_keys=True), {})[name] = result
    parts = [f"# {len(results)} results, {len(groups)} {'kinds' if len(groups) > 1 else 'kind'} of measurement"]
    parts += [_group_report(group) for group in groups.values()]
    if skipped:
        parts.append("\n".join([f"skipped, {len(skipped)}:", *skipped]))
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
        figures.append("first" if result is first else str(compare(result, first)["speed-up"]))
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
