"""The benchmark of the curriculum notices the injected faults; its times are not tested."""

import numpy as np

from benchmarks.curriculum import (
    HYPOTHESES,
    INJECTED,
    Benchmark,
    Costs,
    NaiveRescan,
    Section,
    criteria,
    main,
    measure,
    outcome_table,
    statistics_costs,
)
from rl.config.curriculum import CURRICULA, CurriculumConfig
from rl.curriculum import STRATEGIES


def test_every_strategy_recalculates_once_per_update_and_the_planted_one_after_each_episode():
    config = CurriculumConfig()
    for name in CURRICULA:
        costs = measure(name, STRATEGIES[name], CurriculumConfig(strategy=name), 50, 6, 128)
        assert costs.scans <= 1000 / 128
        assert not costs.grown
    assert measure("injected", NaiveRescan, config, 50, 3, 64).scans >= 1000


def test_each_phase_has_a_verdict_and_counts_show_the_planted_faults():
    sections = list(Benchmark(counts=(10, 200), updates=6, episodes=128).sections())
    assert [section.title.split()[0] for section in sections] == ["1", "2", "4", "5", "6", "7", "8", "9", "10"]
    assert all(section.verdict and section.rows for section in sections)
    _, naive, hoarder = sections[-1].rows  # its verdict is by times, too
    assert float(naive[2]) >= 900
    assert hoarder[-1].startswith("Hoarder.past")
    assert len(outcome_table(sections)) == len(HYPOTHESES)
    without, with_them = sections[-2].rows
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
        Section(INJECTED, (), [], "", "injected" not in blamed),
    ]


def test_each_suspicion_says_what_its_test_shows_if_it_holds():
    table = outcome_table(sections_of(section_6=[costs("plr")]))
    assert [row[3] for row in table] == ["no", "no", "yes", "no", "no"]
    assert table[2] == (
        *("something leaks", "bytes over the run", "more at the end than after a third"),
        *("yes", "bound what grows"),
    )


def test_speed_is_constant_over_a_hundred_updates_of_learning_progress_or_not_judged():
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


def test_a_fault_has_a_cause_an_impact_and_a_remedy():
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
    assert verdicts(injected=True) == ["not evaluated: an injected fault was not noticed"] * 3


def test_what_each_statistic_costs_is_told():
    assert {"summary", "pools", "raw_scores", "ginis"} == set(statistics_costs(20))


def test_the_script_prints_all_sections(capsys):
    assert main(["--levels", "10", "--updates", "6", "--episodes", "64"]) in (0, 1)
    printed = capsys.readouterr().out
    assert "Outcome" in printed
    assert "Fault injection" in printed
    assert "expected, if so" in printed
    assert "not evaluated: " in printed
    assert main(["--levels", "0"]) == 2
