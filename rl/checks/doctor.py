"""Doctor: runs the checks of an event and collects their results.

doctor = Doctor(print, folder / "doctor.json", only=("data",))
doctor.add(config=config, levels=levels)       # objects for all later checks
doctor.skip(dataset="no imitation in this run")
doctor.run(BEFORE)
doctor.failed, doctor.results
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from nppsim.errors import did_you_mean, redact
from nppsim.io.files import write_json
from rl.checks import config, data, learning, run
from rl.checks.check import (
    EVENTS,
    FAILED,
    UPDATE,
    WARNING,
    Check,
    DoctorError,
    Result,
    crash_report,
    read_results,
    summary,
    to_dict,
)
from rl.policy.recurrent import FOLLOWS
from rl.training.callbacks import PPOCallback

GROUPS = {
    "data": "levels and demonstrations",
    "config": "settings, rewards, hardware and budget",
    "learning": "network, imitation and first updates",
    "run": "files of runs and agents",
}
CHECKS = [one for module in (data, config, learning, run) for one in vars(module).values() if isinstance(one, Check)]
SAMPLE = 256  # number of decisions drawn from the first rollout


class Doctor:
    """Runs the checks of one training and collects the results.

    log: function that prints a message.
    path: file to which the results are written, or None.  Results of other events in this file are preserved.
    only: names of checks or groups to run; None: all.
    trial: True in a trial run, in which the first update is checked.
    """

    def __init__(
        self,
        log: Callable[[str], object],
        path: Path | None = None,
        *,
        only: Iterable[str] | None = None,
        trial: bool = False,
    ):
        self.log, self.path, self.trial = log, path, trial
        self.only = None if only is None else frozenset(only)
        names = [*GROUPS, *(check.name for check in CHECKS)]
        for name in sorted((self.only or frozenset()) - set(names)):
            near = did_you_mean(name, names)
            raise DoctorError(f"there is no check {name!r}{near or '; scripts/doctor.py prints the names of all'}")
        self.results: list[Result] = []
        self._earlier = read_results(path) if path else []  # results before the run was resumed
        self._objects: dict[str, Any] = {}
        self._absent: dict[str, str] = {}

    def add(self, **objects: Any) -> None:
        """Add or replace objects for all later checks."""
        self._objects |= objects

    def skip(self, **reasons: str) -> None:
        """Skip later checks of objects that will not exist.  reasons: reason by name of the object."""
        self._absent |= reasons

    def run(self, event: str, **objects: Any) -> None:
        """Make the checks of an event; torch's random generator is left unchanged.  objects: for these checks only."""
        with torch.random.fork_rng(devices=[]):
            new = [
                check.run(event, self._objects | objects, self._absent)
                for check in CHECKS
                if event in check.events and (self.only is None or self.only & {check.name, check.group})
            ]
        self.results += new
        if self.path:
            events = {result.event for result in self.results}
            stored = [*(result for result in self._earlier if result.event not in events), *self.results]
            write_json(self.path, to_dict(sorted(stored, key=lambda result: list(EVENTS).index(result.event))))
        self.log(f"checks {EVENTS[event]}: {summary(new)}, in {sum(result.seconds for result in new):.1f} s")
        for result in new:
            if result.status in (FAILED, WARNING):
                self.log(str(result))

    def record_failure(self, event: str, name: str, error: Exception) -> None:
        """Record that a step of the run failed, and skip all later checks of objects that do not exist yet."""
        names = {name for check in CHECKS for name in check.objects}
        self.skip(**dict.fromkeys(names - self._absent.keys(), f"{name} failed before"))
        message, remedy = crash_report(error)
        self.results.append(Result(name, "run", event, FAILED, redact(message), remedy))

    @property
    def failed(self) -> bool:
        """True if any check has failed."""
        return any(result.status == FAILED for result in self.results)


class FirstUpdateChecks(PPOCallback):
    """Callback that makes the checks after the first update of the actor, on random decisions of its rollout."""

    def __init__(self, doctor: Doctor):
        super().__init__()
        self.doctor, self._done = doctor, False

    def _on_rollout_start(self) -> None:
        if not self.model.actor_updates or self._done:
            return
        self._done = True
        ppo, buffer = self.model, self.model.rollout_buffer
        index = np.random.default_rng(0).choice(len(buffer), min(SAMPLE, len(buffer)), replace=False)
        observed = buffer.observations(torch.from_numpy(np.sort(index)).to(ppo.device))
        sample = {key: values for key, values in observed.items() if key != FOLLOWS}
        self.doctor.add(ppo=ppo, policy=ppo.policy, sample=sample)
        self.doctor.run(UPDATE)

    _on_training_end = _on_rollout_start
