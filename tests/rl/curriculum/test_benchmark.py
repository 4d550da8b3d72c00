"""The benchmark of the curriculum: it convicts the planted scan and counts what the code does.  No times are judged."""

from rl.curriculum import STRATEGIES
from rl.curriculum.benchmark import (
    HYPOTHESES,
    MOST_BYTES,
    Benchmark,
    NaiveRescan,
    measure,
    outcome_table,
    statistics_costs,
)
from rl.curriculum_config import CURRICULA, CurriculumConfig

from programs import load_script


def test_every_strategy_recalculates_once_per_update_and_the_planted_one_after_each_episode():
    config = CurriculumConfig()
    for name in CURRICULA:
        costs = measure(name, STRATEGIES[name], CurriculumConfig(strategy=name), 50, 6, 128)
        assert costs.scans <= 1000 / 128
        assert costs.bytes_after <= 1.05 * costs.bytes_before + MOST_BYTES
    assert measure("planted", NaiveRescan, config, 50, 3, 64).scans == 1000


def test_each_phase_has_a_verdict_and_counts_show_the_planted_faults():
    sections = list(Benchmark(counts=(10, 200), updates=6, episodes=128).sections())
    assert [section.title[0] for section in sections] == list("12456789")
    assert all(section.verdict and section.rows for section in sections)
    _, naive, hoarder = sections[-1].rows  # its verdict is by times, too
    assert float(naive[2]) >= 900
    assert float(hoarder[-1].rstrip("%")) > 5
    assert len(outcome_table(sections)) == len(HYPOTHESES)


def test_what_each_statistic_costs_is_told():
    assert {"summary", "pools", "raw_scores", "ginis"} == set(statistics_costs(20))


def test_the_script_prints_all_sections(capsys):
    main = load_script("benchmark_curriculum").main
    assert main(["--levels", "10", "--updates", "6", "--episodes", "64"]) in (0, 1)
    printed = capsys.readouterr().out
    assert "Outcome" in printed
    assert "Planted faults" in printed
    assert main(["--levels", "0"]) == 2
