"""Throughput of the simulator on a workload: rounds, profiles, the record of a result, comparison, report.

    result = measure(workload)                            # a dict, as it is stored
    on = side_by_side(workload, "profile")                # cost of a switch, and the phases it shows
    found = compare_with_baseline(result, load_result("before.json"))   # speed-up with interval
    print(benchmark_report("results"))

What is timed for a result is never profiled and never validated: those run on simulators of their own.
"""

import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from time import perf_counter

import numpy as np

from nppsim.batch import BatchSimulator
from nppsim.files import table
from nppsim.measure.machine import conditions, differences
from nppsim.measure.timing import (
    Estimate,
    Summary,
    TimingError,
    alternate,
    calibrate,
    mean_of_ratios,
    ratio_of_means,
    summarise,
)
from nppsim.measure.workload import Workload

FORMAT, VERSION = "nppsim benchmark", 1
KEY = ("machine", "versions", "settings")  # parts of a result in which compared results must agree
SMALLEST_SHARE = 0.01  # of the step; phases below it are left out of tables


class Player:
    """A simulator and its place in a workload.  switches: ``profile`` or ``shadow`` of the BatchSimulator."""

    def __init__(self, workload: Workload, **switches: bool):
        settings = workload.settings
        self.workload, self.row = workload, 0
        # Both switches are given, so that the environment variables that would turn them on have no say here.
        self.simulator = BatchSimulator(
            workload.bank,
            settings.envs,
            frame_skip=settings.frame_skip,
            observations=settings.observations,
            threads=settings.threads,
            **({"profile": False, "shadow": False} | switches),
        )
        self.simulator.reset(workload.start)

    def play(self, rows: int, phases: dict[str, float] | None = None) -> float:
        """Play the next rows; returns seconds.  phases: nanoseconds of each phase are added to it."""
        simulator, first = self.simulator, self.row
        self.row += rows
        actions, next_level = (a[first : self.row] for a in (self.workload.actions, self.workload.next_level))
        begin = perf_counter()
        for t in range(rows):
            simulator.next_level[:] = next_level[t]
            simulator.step(actions[t])
            if phases is not None:
                for phase, nanoseconds in simulator.step_timing.items():
                    phases[phase] = phases.get(phase, 0.0) + nanoseconds
        return perf_counter() - begin

    def check_end(self) -> None:
        """Raise TimingError if recordings were not played as planned: their episodes ended elsewhere."""
        end = self.workload.end
        if end is not None and (astray := np.flatnonzero(self.simulator.level != end)).size:
            raise TimingError(
                f"recorded play went astray in {astray.size} of {len(end)} environments, e.g. {astray[0]}: an episode "
                "did not end where it did before; does the result of a step depend on the batch?"
            )


def measure(workload: Workload, *, phase: str = "") -> dict:
    """Time the rounds of a workload; the result as a plain dictionary.

    phase: a label, such as "before".  Keys: "format", "version", "phase", "date", those of ``KEY``, "build", "coverage"
    (``Workload.coverage``), "decisions_per_round" (of all environments), "round_s" and "calibration" (lists, one entry
    per round), "summary", "decisions_per_s", "decisions_per_s_sd", "cv", "stability".
    """
    settings = workload.settings
    player = Player(workload)
    player.play(settings.warmup)
    calibrate()  # compiled
    seconds, calibrations = [], [calibrate()]
    for _ in range(settings.rounds):
        seconds.append(player.play(settings.iterations))
        calibrations.append(calibrate())
    player.check_end()
    beside = {name: [(a[name] + b[name]) / 2 for a, b in itertools.pairwise(calibrations)] for name in calibrations[0]}
    summary, decisions = summarise(seconds), settings.iterations * settings.envs
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
        "round_s": seconds,
        "calibration": beside,
        "summary": asdict(summary),
        "decisions_per_s": per_s,
        "decisions_per_s_sd": per_s_sd,
        "cv": summary.cv,
        "stability": summary.stability,
    }


def describe(result: Mapping) -> str:
    """A result in a few lines of text."""
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
# Switches: their cost, and what they show


@dataclass(frozen=True)
class SideBySide:
    """The same workload with and without a switch, in alternating rounds.

    ratio: time with / time without.  seconds, decisions: of the rounds with it, all environments together.
    phases: nanoseconds of each phase in these rounds, summed over threads.  simulator: the one with the switch.
    """

    ratio: Estimate
    seconds: float
    decisions: int
    threads: int
    phases: dict[str, float]
    simulator: BatchSimulator

    def profile_table(self) -> str:
        """Mean µs per decision, share of the step (all phases) and of the wall time (times threads), per phase."""
        rows, left_out = profile_rows(self.phases, self.decisions, self.seconds * self.threads)
        header = ("phase", "µs per decision", "% of step", "% of wall time")

        def percent(share):
            return "" if math.isnan(share) else f"{share:.1%}"

        text = table(header, [(name, f"{us:.3f}", percent(step), percent(wall)) for name, us, step, wall in rows])
        if left_out:
            text += f"\nbelow {SMALLEST_SHARE:.0%} of the step, left out: {', '.join(left_out)}"
        return text


def side_by_side(workload: Workload, switch: str) -> SideBySide:
    """Play a workload on two simulators in alternating rounds, one of them with ``switch`` ("profile" or "shadow") on."""
    settings, phases = workload.settings, {}
    without, with_it = Player(workload), Player(workload, **{switch: True})
    without.play(settings.warmup)
    with_it.play(settings.warmup)
    times_with, times_without = alternate(
        lambda: with_it.play(settings.iterations, phases if switch == "profile" else None),
        lambda: without.play(settings.iterations),
        settings.rounds,
    )
    for player in (without, with_it):
        player.check_end()
    return SideBySide(
        mean_of_ratios(times_with, times_without),
        float(times_with.sum()),
        settings.iterations * settings.rounds * settings.envs,
        settings.threads,
        phases,
        with_it.simulator,
    )


def profile_rows(
    phases: Mapping[str, float], decisions: int, core_seconds: float
) -> tuple[list[tuple[str, float, float, float]], list[str]]:
    """Rows (phase, µs per decision, share of the step, share of the wall time) and the names of phases left out.

    phases: nanoseconds, summed over threads.  core_seconds: wall time times threads.  The last two rows are the whole
    step, and what passed outside of it: Python, and threads that waited (share of the step: NaN).
    Raises TimingError if nothing was timed.
    """
    step = sum(phases.values())
    if not step > 0:
        raise TimingError("no phase was timed; was the simulator built with profile=True?")
    rows = [(name, ns / 1e3 / decisions, ns / step, ns / 1e9 / core_seconds) for name, ns in phases.items()]
    outside = core_seconds - step / 1e9
    shown = [row for row in rows if row[2] >= SMALLEST_SHARE]
    shown.append(("the step, all phases", step / 1e3 / decisions, 1.0, step / 1e9 / core_seconds))
    shown.append(("outside of the step", outside * 1e6 / decisions, math.nan, outside / core_seconds))
    return shown, [row[0] for row in rows if row[2] < SMALLEST_SHARE]


# ---------------------------------------------------------------------------------------------------------------------
# Comparison and report


@dataclass(frozen=True)
class BaselineComparison:
    """A result against a baseline; ratios above 1 mean that the result is faster.

    speed_up: of decisions/s.  by_numba, by_python: the same where a machine that was slower in the one hour than in the
    other is allowed for: times counted in iterations that the calibration loop would have done.
    """

    speed_up: Estimate
    by_numba: Estimate
    by_python: Estimate

    def regressed(self, threshold: float) -> bool:
        """Slower by more than ``threshold`` (0.1: 10 %), with both intervals, plain and by Numba's loop, beyond it."""
        limit = 1 - threshold
        return all((e.value if e.high is None else e.high) < limit for e in (self.speed_up, self.by_numba))


def check_comparable(result: Mapping, baseline: Mapping, name: str) -> None:
    """Raise TimingError, naming every difference, unless machine, versions and settings agree."""
    different = differences({part: result[part] for part in KEY}, baseline)
    if different:
        raise TimingError(
            f"{name} cannot be compared: {'; '.join(different)}. Measure it again under the same conditions"
        )


def compare_with_baseline(result: Mapping, baseline: Mapping, name: str = "the baseline") -> BaselineComparison:
    """Speed of a result relative to a baseline.  Raises TimingError unless machine, versions and settings agree."""
    check_comparable(result, baseline, name)

    def work(record, loop):
        return np.multiply(record["round_s"], record["calibration"][loop] if loop else 1.0)

    return BaselineComparison(
        *(ratio_of_means(work(baseline, loop), work(result, loop)) for loop in (None, "numba", "python"))
    )


def comparison_table(result: Mapping, baselines: Mapping[str, Mapping]) -> str:
    """Text of the comparisons with several baselines (name -> result)."""
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
    """Read a stored result.  Raises TimingError for a file that is none."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise TimingError(f"{path}: {error.strerror}; give a file written with --output") from error
    except ValueError as error:
        raise TimingError(f"{path}: not a JSON file ({error}); was it cut off?") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT or data.get("version") != VERSION:
        raise TimingError(f"{path}: not a benchmark result of version {VERSION}; measure again with --output")
    expected = (*KEY, "phase", "date", "build", "decisions_per_round", "round_s", "calibration", "summary", "stability")
    if missing := [key for key in expected if key not in data]:
        raise TimingError(f"{path}: {', '.join(missing)} missing; measure again with --output")
    return data


def benchmark_report(folder: str | Path) -> str:
    """Markdown summary of the results in a folder: one table for each set of results that may be compared.

    The speed-up is relative to the oldest of a table.  Other JSON files are named as skipped.  Raises TimingError if
    there are no results.
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
    text = [f"# {len(results)} results, {len(groups)} {'kinds' if len(groups) > 1 else 'kind'} of measurement"]
    for group in groups.values():
        first = next(iter(group.values()))
        machine, settings = first["machine"], first["settings"]
        libraries = ", ".join(f"{name} {number}" for name, number in first["versions"].items())
        shown = ", ".join(
            f"{name} {value}" for name, value in settings.items() if name not in ("observations", "source")
        )
        text += ["", f"## {settings['source']}", ""]
        text += [f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}; {libraries}", ""]
        text += [f"{shown}, observations {' '.join(settings['observations'])}", ""]
        header = ("file", "label", "date", "commit", "decisions/s", "sd", "CV", "p50, s", "p95, s", "p99, s")
        rows = []
        for name, r in group.items():
            s = r["summary"]
            figures = [
                f"{r['decisions_per_s']:,.0f}",
                f"{r['decisions_per_s_sd']:,.0f}",
                f"{r['cv']:.1%} {r['stability']}",
            ]
            times = [f"{s[key]:.4f}" for key in ("p50", "p95", "p99")]
            loops = [f"{np.mean(r['calibration'][loop]):,.1f}" for loop in ("python", "numba")]
            relative = "first" if r is first else str(compare_with_baseline(r, first).speed_up)
            rows.append((name, r["phase"], r["date"], _commit(r), *figures, *times, *loops, relative))
        text.append(table((*header, "Python, 10^6/s", "Numba, 10^6/s", "speed-up"), rows))
    if skipped:
        text += ["", f"skipped, {len(skipped)}:", *(f"- {reason}" for reason in skipped)]
    return "\n".join(text)


def _commit(result: Mapping) -> str:
    """Commit, with a plus if files were changed since; digest of the sources where there is none."""
    build = result["build"]
    if "commit" not in build:
        return build["source_digest"][:8]
    return build["commit"][:8] + ("+" if build["changed_files"] != "0" else "")
