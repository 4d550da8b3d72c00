"""What judges runs, judged: on made-up curves, bands and checklist call what is worse worse, and what is sound sound."""

import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from rl.doctor.checklist import checklist
from rl.doctor.doctor import BEFORE, check, require
from rl.doctor.reference import WATCHED, _band, _held
from rl.events import EventWriter, Scalars

_PROGRAM = "this is a mistake in the program, not in your settings: please report it"
STEPS = np.arange(1, 13) * 50_000
RISING = np.linspace(0.0, 1.0, len(STEPS))
SOUND: dict[str, np.ndarray] = {
    "rollout/success_rate": 0.3 + 0.5 * RISING,
    "curriculum_stages/simplest_success_rate": 0.3 + 0.5 * RISING,
    "rollout/ep_rew_mean": RISING,
    "train/policy_gradient_loss": -RISING,
    "sim/update_s": np.ones(len(STEPS)),
    "sim/decisions_per_s": np.full(len(STEPS), 10_000.0),
    "time/fps": np.full(len(STEPS), 5_000.0),
    "curriculum/current_stage_idx": np.floor(2.5 * RISING),
}
UNSOUND = SOUND | {
    "rollout/success_rate": 0.05 * RISING,
    "curriculum_stages/simplest_success_rate": 0.1 * RISING,
    "rollout/ep_rew_mean": -RISING,
    "train/policy_gradient_loss": RISING,
    "sim/update_s": np.full(len(STEPS), 40.0),
    "time/fps": np.full(len(STEPS), 10.0),
    "curriculum/current_stage_idx": np.zeros(len(STEPS)),
}


@check(BEFORE)
def verdicts_are_the_right_way_round() -> str:
    """On made-up curves, the checklist meets all criteria of a sound run and none of an unsound one; reference bands hold a
    run like the reference's seeds to be in them, one beyond to be worse on the side that is worse, and one that lacks the
    curve to be worse."""
    count = 0
    for curves, wanted in ((SOUND, True), (UNSOUND, False)):
        with tempfile.TemporaryDirectory(prefix="verdicts_") as folder:
            with EventWriter(Path(folder) / "tensorboard") as writer:
                for tag, values in curves.items():
                    for step, value in zip(STEPS.tolist(), values.tolist(), strict=True):
                        writer.add_scalar(tag, value, step)
            for item in checklist(Path(folder)):
                told = f"{item.criterion}: {item.mark} at {item.figure}"
                require(item.met is wanted, f"{'a sound' if wanted else 'an unsound'} run: {told}", _PROGRAM)
                count += 1
    for watched in WATCHED:
        seeds = [Scalars(STEPS, 0.5 + 0.2 * RISING + shift) for shift in (-0.01, 0.0, 0.01)]
        band, sign = _band(seeds, int(STEPS[-1]), watched.least), -1 if watched.worse == "below" else 1
        for shift, verdict in (
            (0.0, "in"),
            (0.9 * watched.least, "in"),
            (sign * 0.5, "worse"),
            (-sign * 0.5, "better"),
        ):
            run: Any = SimpleNamespace(scalars={watched.tag: Scalars(STEPS, seeds[1].values + shift)})
            found = _held(run, watched.tag, band["at"], band["low"], band["high"]).verdict  # type: ignore[arg-type]
            require(
                found == verdict, f"{watched.tag}, {shift:+.2f} from the reference: {found}, not {verdict}", _PROGRAM
            )
        lacking: Any = SimpleNamespace(scalars={})
        gone = _held(lacking, watched.tag, band["at"], band["low"], band["high"])  # type: ignore[arg-type]
        require(gone.verdict == "worse", f"{watched.tag} is missing, and that is {gone.verdict}", _PROGRAM)
    return f"{count} verdicts of the checklist, {len(WATCHED)} bands"
