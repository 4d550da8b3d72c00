"""What is worked out a second time in training: which decisions are asked about, when training ends, what a loss is, rows."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from nppsim.errors import ConfigError
from rl.config import EvaluationConfig
from rl.config.command_line import check_in_force, resolve
from rl.config.files import Given
from rl.evaluation.likelihood import sigmas_off
from rl.events import EventsError, EventWriter
from rl.ppo.audit import MOST_SIGMAS, ROWS, deviations, processes_differ, some_rows
from rl.ppo.guard import EarlyStopping, Retention, no_improvement, wrongly_judged
from rl.ppo.logs import GrowingTable
from rl.ppo.rows import Row, check_table, last_row


@pytest.mark.parametrize(("size", "envs"), [(512, 16), (4096, 256), (128 * 64, 64), (300, 3), (200, 8)])
def test_all_decisions_have_their_turn_and_no_environment_is_left_out(size, envs):
    turns = [some_rows(size, turn) for turn in range(-(-size // ROWS))]
    for rows in turns:
        assert len(rows) == len(set(rows.tolist())) == min(size, ROWS)
        assert 0 <= rows.min() <= rows.max() < size
        assert len(set((rows % envs).tolist())) > 0.5 * min(envs, ROWS)
    assert set(np.concatenate(turns).tolist()) == set(range(size))


@pytest.mark.parametrize(("patience", "least", "rise"), [(1, 1, 0.0), (3, 5, 0.01), (2, 4, 0.1)])
def test_training_ends_where_all_evaluations_together_say_so(patience, least, rise):
    config = EvaluationConfig(
        early_stopping=True,
        early_stopping_patience=patience,
        early_stopping_min_evaluations=least,
        early_stopping_improvement=rise,
    )
    rng = np.random.default_rng(0)
    for _ in range(50):
        early, success = EarlyStopping(config), rng.random(12).round(2)
        for count in range(1, 13):
            assert early.update(success[count - 1]) == no_improvement(success[:count], config)


def test_a_loss_is_a_loss_and_a_gain_is_none():
    rng = np.random.default_rng(0)
    for _ in range(20):
        gained = rng.normal(rng.choice([-0.3, -0.1, 0.0, 0.1]), 0.3, 40)
        lost = Retention(cloned=np.zeros(40)).lost(gained)
        assert not wrongly_judged(gained, lost is not None)
    assert "called a loss" in wrongly_judged(np.full(40, 0.1), True)
    assert "not called a loss" in wrongly_judged(rng.normal(-0.5, 0.3, 40), False)


def test_the_same_loss_on_all_levels_is_a_loss():
    """It has no interval, as redrawing the levels changes nothing."""
    assert Retention(cloned=np.ones(40)).lost(np.zeros(40)).value == -1
    assert Retention(cloned=np.ones(40)).lost(np.ones(40)) is None
    assert Retention(cloned=np.ones(1)).lost(np.zeros(1)) is None  # a single level says little


def test_the_last_row_of_a_table_is_read_from_its_end(tmp_path):
    table = GrowingTable(tmp_path / "progress.csv")
    for number in range(2000):
        table.write({f"train/{name}": number + 0.5 for name in range(10 + (number > 1500))}, {})
    row = last_row(table.path)
    assert len(row) == 11 and set(row.values()) == {"1999.5"}


def test_a_last_row_that_is_cut_off_is_refused(tmp_path):
    (tmp_path / "progress.csv").write_text("a,b,c\n1,2,3\n4,5\n")
    with pytest.raises(EventsError, match=r"progress.csv: its last row has 2 of 3 columns"):
        last_row(tmp_path / "progress.csv")


def test_rare_actions_are_no_alarm_and_other_actions_are():
    rng, sure = np.random.default_rng(0), np.array([0.9, *[0.1 / 5 - 1e-7] * 4, 0.1 / 5 + 4e-7])
    probs = np.tile(sure / sure.sum(), (2000, 1))
    assert deviations(probs, rng.choice(6, 2000, p=probs[0]))[0] < 4
    assert deviations(probs, rng.integers(6, size=2000))[0] > MOST_SIGMAS
    probs = np.tile([1 - 5e-4, 1e-4, 1e-4, 1e-4, 1e-4, 1e-4], (10_000, 1))
    rare = np.zeros(10_000, int)
    rare[:7] = 1  # once is to be expected; seven times comes once in 12,000 rollouts, which is not never
    assert deviations(probs, rare)[0] < MOST_SIGMAS
    log_probs = np.log(np.tile([1 - 2e-5, 2e-5], (1000, 1)))
    assert sigmas_off(log_probs, np.eye(1, 1000, 5, dtype=int)[0]) == 0, "one rare choice of a sure policy"
    assert sigmas_off(log_probs, np.ones(1000, int)) > MOST_SIGMAS


def test_two_processes_that_play_the_same_are_one_too_many():
    def among(others):
        ranks = SimpleNamespace(
            all_gather_rows=lambda mine: np.concatenate([mine, mine if others == "same" else mine + 1])
        )
        buffer = SimpleNamespace(actions=torch.arange(6).view(2, 3))
        return [fault.name for fault in processes_differ(SimpleNamespace(ranks=ranks, rollout_buffer=buffer))]

    assert among("same") == ["actions"] and among("other") == []


def test_rows_of_the_table_are_held_against_the_curves(tmp_path):
    table, rows = (
        GrowingTable(tmp_path / "progress.csv"),
        [{"time/total_timesteps": 10 * n, "a": n + 0.5} for n in (1, 2)],
    )
    with EventWriter(tmp_path / "tensorboard") as writer:
        for row in rows:
            table.write(row, {})
            writer.add_scalar("a", row["a"], row["time/total_timesteps"])
    check_table(tmp_path)
    table.path.write_text(table.path.read_text().replace("2.5", "1.5"))
    with pytest.raises(EventsError, match="row 2 has 1.5 as a"):
        check_table(tmp_path)


def test_an_evaluation_that_came_late_stands_in_a_later_row(tmp_path):
    """In the row of the step at which it was concluded from; the next one, ordered there, has that step in its curve."""
    table = GrowingTable(tmp_path / "progress.csv")
    with EventWriter(tmp_path / "tensorboard") as writer:
        for ordered, step, success in ((10, 20, 0.5), (20, 30, 0.6)):
            table.write({"time/total_timesteps": step, "eval/success": success}, {})
            writer.add_scalar("eval/success", success, ordered)
    check_table(tmp_path)


def test_what_is_in_the_table_alone_is_missing(tmp_path):
    table = GrowingTable(tmp_path / "progress.csv")
    table.write({"time/total_timesteps": 10, "a": 1.0, "b": 2.0}, {})
    with EventWriter(tmp_path / "tensorboard") as writer:
        writer.add_scalar("a", 1.0, 10)
    with pytest.raises(EventsError, match="row 1 has 2.0 as b"):
        check_table(tmp_path)


def test_a_clock_that_was_set_is_a_warning(tmp_path):
    GrowingTable(tmp_path / "progress.csv").write({"time/total_timesteps": 1000, "time/fps": 3}, {})
    (fault,) = Row({}, 1000, 10.0).faults(tmp_path)
    assert fault.name == "time/fps" and not fault.stop and "100 per second" in fault.text
    assert not list(Row({}, 39, 10.0).faults(tmp_path)), "3.9 per second, cut to an integer"


def test_a_setting_that_was_given_and_is_not_in_force_is_refused():
    config = resolve(["--experiment-name", "a", "--architectures", "vision_free", "--gamma", "0.98"])
    given = {("ppo", "gamma"): Given(0.98, "--gamma", "command line")}
    check_in_force(config, given)
    with pytest.raises(ConfigError, match="is 0.98 in the configuration"):
        check_in_force(config, {key: one._replace(value=0.97) for key, one in given.items()})
