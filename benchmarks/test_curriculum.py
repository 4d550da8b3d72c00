"""The curriculum benchmark runs and reports each section; its times are not tested."""

import numpy as np
import pytest

from benchmarks.curriculum import (
    HYPOTHESES,
    Benchmark,
    Costs,
    Section,
    criteria,
    main,
    measure,
    outcome_table,
    slope,
    statistics_costs,
)
from nppsim.measure.intervals import Estimate, IntervalError
from rl.config.curriculum import CURRICULA, CurriculumConfig
from rl.curriculum import STRATEGIES
from rl.curriculum.strategy import Strategy


class Rescan(Strategy):
    """Computes the distribution again at each draw."""

    def draw(self, n):
        self.weigh(np.ones(len(self.levels)))
        return super().draw(n)

    def update(self, outcomes):
        pass


def test_every_strategy_recalculates_once_per_update():
    assert measure("rescan", Rescan, CurriculumConfig(), 50, 3, 64).scans > 1000 / 64
    for name in CURRICULA:
        costs = measure(name, STRATEGIES[name], CurriculumConfig(strategy=name), 50, 6, 128)
        assert costs.scans <= 1000 / 128
        assert not costs.grown


def test_each_phase_has_a_verdict():
    sections = list(Benchmark(counts=(10, 200), updates=6, episodes=128).sections())
    assert [section.title.split()[0] for section in sections] == ["1", "2", "4", "5", "6", "7", "8", "9"]
    assert all(section.verdict and section.rows for section in sections)
    assert len(outcome_table(sections)) == len(HYPOTHESES)
    without, with_them = sections[-1].rows
    assert [row[0] for row in (without, with_them)] == ["without", "with"]
    assert float(with_them[3]) > float(without[3]) > 0


def costs(strategy, each_us=2.0):
    """Made up: of a strategy with 1,000 levels."""
    return Costs(strategy, 1000, 1.0, 1.0, 1.0, 1.0, np.full(120, each_us), 80, 0.1, {}, {})


def sections_of(**blamed):
    """Sections with their verdicts; blamed: section and number -> what is at fault there."""
    titles = ("1 Speed over the run", "2 Recalculation", "4 Resume", "5 Statistics", "6 Containers", "7 Side by side")
    sections = [Section(title, (), [], "", not (bad := blamed.get(f"section_{title[0]}", ())), bad) for title in titles]
    return [
        *sections,
        Section("9 Start states", (), [], "", None),
    ]


def test_outcome_table():
    table = outcome_table(sections_of(section_6=[costs("plr")]))
    assert [row[3] for row in table] == ["no", "no", "yes", "no", "no"]
    assert table[2] == (
        *("something leaks", "bytes over the run", "more at the end than after a third"),
        *("yes", "bound what grows"),
    )


def test_constant_speed_of_learning_progress_is_evaluated_over_100_updates():
    def verdict(updates, **blamed):
        (criterion, verdict), *_ = criteria(sections_of(**blamed), updates, 100.0)
        assert criterion == "constant steps/s over 100+ updates with learning progress"
        return verdict

    assert verdict(100) == "met"
    assert verdict(99) == "not evaluated: fewer than 100 updates"
    assert verdict(100, section_1=[costs("plr")]) == "met"
    assert verdict(100, section_1=[costs("learning_progress")]).startswith(
        "not met: falls, learning_progress with 1,000"
    )


def test_criteria_name_cause_impact_and_remedy():
    def verdicts(**blamed):
        return [verdict for _, verdict in criteria(sections_of(**blamed), 100, 98.0)][1:]

    assert verdicts() == ["met: nothing is at fault"] * 3
    assert verdicts(section_2=[costs("plr")], section_7=[costs("plr")]) == [
        "met: scores are recalculated after each episode, the curriculum is too slow for this many levels (2 "
        "Recalculation, 7 Side by side)",
        "met: plr with 1,000 levels takes 2.00% of the time",
        "met: update less often, fewer levels",
    ]
    cause, impact, fix = verdicts(section_1=[costs("stages")])
    assert cause == "not met: 1 Speed over the run, and no suspicion is confirmed"
    assert impact == "met: stages with 1,000 levels takes 2.00% of the time"
    assert fix.startswith("not met")


def test_costs_of_each_statistic():
    assert {"metrics", "pools", "raw_scores", "ginis"} == set(statistics_costs(20))


def test_the_script_prints_all_sections(capsys):
    assert main(["--levels", "10", "--updates", "6", "--episodes", "64"]) in (0, 1)
    printed = capsys.readouterr().out
    assert "Outcome" in printed
    assert "expected, if so" in printed
    assert "not evaluated: " in printed
    assert main(["--levels", "0"]) == 2


def test_the_slope_of_a_line_is_found_through_noise_and_wild_values():
    rng = np.random.default_rng(0)
    series = 0.5 * np.arange(60) + rng.normal(size=60)
    series[::7] += 1000
    found = slope(series)
    assert found.low < 0.5 < found.high
    assert found.high - found.low < 0.2
    flat = [slope(rng.normal(size=40)) for _ in range(200)]
    assert 180 <= sum(one.low < 0 < one.high for one in flat) <= 199
    assert slope([1.0, 3.0]) == Estimate(2.0, None, None)
    with pytest.raises(IntervalError, match="has no slope"):
        slope([1.0])
