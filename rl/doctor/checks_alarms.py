"""The guards themselves: on made-up numbers, and on a rollout that is spoilt for the purpose, alarms say what is wrong."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from rl.doctor.doctor import BEFORE, FAILED, UPDATE, CheckFailed, CheckInfo, CheckSkipped, check, require
from rl.ppo.alarms import ALL_AUDITED, ENOUGH_DECISIONS, WINDOW, AlarmError, Alarms, Figures, bands, wrong_direction
from rl.ppo.audit import Fault, Kept, decisions_are_the_policys, episodes_add_up, settings_agree
from rl.ppo.draws import Bet
from rl.ppo.growth import falling, growing
from rl.ppo.monitor import TrainingMonitor
from rl.ppo.ppo import BatchPPO

_PROGRAM = "this is a mistake in the program, not in your settings: please report it"
GOOD: dict[str, Any] = {
    "episodes": 100, "wins": 20, "positive": 50, "kl": 0.01, "clip_fraction": 0.1, "entropy": 1.0, "explained_variance": 0.5,
    "reference_kl": 0.1, "away": 1.0, "error_ratio": 0.9, "top_share": 0.3, "rate": 1000.0, "memory_mib": 500.0,
}  # fmt: skip
# What is wrong in all updates -> the alarm that has to tell it.
BAD: dict[str, tuple[Callable[[Alarms, BatchPPO], Iterator[Fault]], dict[str, Any]]] = {
    "direction": (wrong_direction, {"away": -3.0}),
    "values": (wrong_direction, {"error_ratio": 4.0}),
    "KL": (bands, {"kl": 0.5}),
    "clipping": (bands, {"clip_fraction": 0.8}),
    "entropy": (bands, {"entropy": 0.001}),
    "critic": (bands, {"explained_variance": -2.0}),
    "clone": (bands, {"reference_kl": 5.0}),
}


@check(BEFORE)
def alarms_tell_what_is_wrong() -> str:
    """On made-up numbers, bands and trends are silent where all is well, and each reports its fault; draws that do not follow
    their stated chances are found out; certain faults stop a run, warnings are given once, failed checks do not pass."""
    ppo: Any = SimpleNamespace(
        config=SimpleNamespace(bc_kl_coef_at=lambda progress: 0.1),
        progress=0.2,
        held_since=0.0,
        seconds=100.0,
        speed={},
        rollout_buffer=range(ENOUGH_DECISIONS),
    )
    for name, (look, changed) in BAD.items():
        for figures, wanted in ((GOOD, False), (GOOD | changed, True)):
            alarms = Alarms()
            alarms.history = deque((Figures(**figures) for _ in range(WINDOW)), maxlen=WINDOW)
            told = name in [fault.name for fault in look(alarms, ppo)]
            require(told == wanted, f"alarm {name} {'speaks' if told else 'is silent'} at {changed}", _PROGRAM)
    slower, sizes = np.linspace(1000, 500, WINDOW), deque(({"list": 100 + i} for i in range(WINDOW)), maxlen=WINDOW)
    require(
        falling(slower) and not falling(slower[::-1]), "what gets slower is not seen, or what gets faster", _PROGRAM
    )
    require([name for name, _ in growing(sizes)] == ["list"], "what grows is not seen", _PROGRAM)
    rng, even = np.random.default_rng(0), np.full(8, 1 / 8)
    for wanted, chances in ((False, even), (True, np.array([0.5, *[0.5 / 7] * 7]))):
        bet = Bet(8)
        for _ in range(WINDOW):
            bet.take(rng.choice(8, 64, p=chances), even)
        require(bet.won == wanted, f"draws by {chances[0]:.0%} are taken for {even[0]:.0%}: {not bet.won}", _PROGRAM)
    _faults_are_heeded()
    return f"{len(BAD)} bands, 2 trends, draws, and what follows from them"


def _faults_are_heeded() -> None:
    """From a fault to the end of a run, or to a line that is read."""
    lines: list[str] = []
    monitor: Any = SimpleNamespace(model=SimpleNamespace(updates=1), _happened=lambda what, text: lines.append(text))
    alarms, warning, certain = Alarms(), Fault("a", "told", False), Fault("b", "stops")
    passed = [len(alarms.new([warning, certain])) for _ in range(2)]
    require(passed == [2, 1], f"of a warning and a fault that stops, {passed} are passed on", _PROGRAM)
    TrainingMonitor._heed(monitor, [warning])
    stopped = False
    try:
        TrainingMonitor._heed(monitor, [certain])
    except AlarmError:
        stopped = True
    require(
        stopped and len(lines) == 1, "faults that are certain do not stop the run, or warnings are not told", _PROGRAM
    )
    alarms.looked = ALL_AUDITED - 1
    require(alarms._due, "the first updates are not looked at", _PROGRAM)

    def broken() -> str:
        require(False, "found", "remedy")
        return ""

    info = CheckInfo("broken", "", (), (), "", broken)
    if info.examine("", {}, {}).status != FAILED:
        raise CheckFailed("a check that fails passes", _PROGRAM)


@check(UPDATE)
def audits_find_what_is_spoilt(ppo: BatchPPO) -> str:
    """The rollout of this run passes its audits as it was played; spoilt in one place after the other, it does not."""
    if ppo.ranks.size > 1:
        raise CheckSkipped("processes that train together are looked at by their alarms")
    buffer, kept = ppo.rollout_buffer, Kept.of(ppo)
    log_probs, values = buffer.flat("log_probs")[kept.rows], buffer.flat("values")[kept.rows]
    kept = replace(kept, log_probs=log_probs, values=values)  # the weights have moved since
    audits: dict[str, tuple[torch.Tensor, int, Callable[[], Iterator[Fault]]]] = {
        "rollout": (buffer.flat("values"), int(kept.rows[-1]), lambda: decisions_are_the_policys(ppo, kept)),
        "episodes": (buffer.flat("episode_ends"), len(buffer) // 2, lambda: episodes_add_up(ppo, None)),
    }
    for name, (field, place, look) in audits.items():
        require(name not in [fault.name for fault in look()], f"{name}: told as wrong, and right", _PROGRAM)
        with spoilt(field, place):
            require(name in [fault.name for fault in look()], f"{name}: spoilt, and nothing has told it", _PROGRAM)
    before, ppo.gae_lambda = ppo.gae_lambda, ppo.gae_lambda + 0.1
    try:
        told = [fault.name for fault in settings_agree(ppo)]
    finally:
        ppo.gae_lambda = before
    require("settings" in told, "another lambda was in force, and nothing has told it", _PROGRAM)
    return f"{', '.join(audits)}, settings"


@contextmanager
def spoilt(field: torch.Tensor, place: int) -> Iterator[None]:
    """One value of a flattened field of a rollout is another meanwhile."""
    value = field[place].clone()
    field[place] = ~value if field.dtype == torch.bool else value + 10 + 10 * field.abs().max()
    try:
        yield
    finally:
        field[place] = value
