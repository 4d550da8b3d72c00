"""The curriculum benchmark measures every strategy and reports exceeded limits; its times are not tested."""

from collections import deque
from dataclasses import replace

import numpy as np

from benchmarks.curriculum import (
    HYPOTHESES,
    main,
    measure,
    outcome_table,
    sizes_of,
    start_state_costs,
    statistics_costs,
)
from nppsim.measure.intervals import Estimate
from rl.config.curriculum import CURRICULA, CurriculumConfig
from rl.curriculum import STRATEGIES
from rl.curriculum.strategy import Strategy


class RecalculatingStrategy(Strategy):
    """Computes the distribution again at each draw."""

    def draw(self, n):
        self.weigh(np.ones(len(self.levels)))
        return super().draw(n)

    def update(self, outcomes):
        pass


def test_measure_counts_recalculations_and_finds_no_growth():
    assert measure("again", RecalculatingStrategy, CurriculumConfig(), 50, 3, 2048).recalculations > 2
    for name in CURRICULA:
        costs = measure(name, STRATEGIES[name], CurriculumConfig(strategy=name), 50, 9, 1280)
        assert costs.recalculations <= 1 and not costs.grown


def test_sizes_of_counts_shared_objects_once():
    class Owner:
        def __init__(self):
            self.array = np.zeros(1000)
            self.same = self.array
            self.table = {number: np.zeros(50) for number in range(100)}
            self.window = deque([1.0] * 10)
            self.number, self.text, self.config = 7, "no container", CurriculumConfig()

    sizes = sizes_of(Owner())
    assert set(sizes) == {"Owner.array", "Owner.table", "Owner.window"}
    assert sizes["Owner.array"].nbytes == 8000
    assert 40_000 < sizes["Owner.table"].nbytes < 60_000
    assert sizes["Owner.table"].entries > 5000


def test_outcome_table_names_strategies_that_exceed_a_limit():
    costs = measure("plr", STRATEGIES["plr"], CurriculumConfig(strategy="plr"), 10, 6, 64)
    flat = Estimate(0.0, -0.001, 0.001)
    good = replace(costs, share=0.001, over_run=flat, by_resume=flat, recalculations=1.0, after=costs.before)
    assert [row[2] for row in outcome_table([good])] == ["none"] * len(HYPOTHESES)
    falling = Estimate(-0.02, -0.03, -0.01)
    for changes, number in ({"over_run": falling}, 0), ({"recalculations": 9.0}, 1), ({"by_resume": falling}, 2):
        rows = outcome_table([good, replace(good, strategy="stages", **changes)])
        assert [row[2] for row in rows if row[2] != "none"] == ["stages with 10 levels"]
        assert rows[number][2] != "none" and rows[number][3] == HYPOTHESES[number][3]


def test_costs_of_statistics_and_start_states():
    assert {"metrics", "pools", "raw_scores", "ginis"} == set(statistics_costs(20))
    without, with_them = start_state_costs(4, 20).values()
    assert with_them[1] > without[1] > 0


def test_main_prints_all_tables(capsys):
    assert main(["--levels", "10", "--updates", "6", "--episodes", "64"]) in (0, 1)
    printed = capsys.readouterr().out
    for text in ("µs per episode", "levels in the pool", "start states", "remedy"):
        assert text in printed
    assert main(["--levels", "0"]) == 2
