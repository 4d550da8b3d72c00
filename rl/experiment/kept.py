"""What a run keeps on disk beside its checkpoints, so that whoever goes on with it does nothing twice.

plan.json                    sizes, threads and precision: measured once, since another plan would be another run
pretrain/clone.safetensors   the BC policy, its statistics, how it was made, observations to compare others with it on
pretrain/taught.safetensors  the same after lessons from a teacher
finished.json                everything that results and report need of a run that is over
"""

import base64
import math
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import hardware
from bc.train import BCResult
from nppsim.errors import UserError
from nppsim.files import write_json
from nppsim.levels.level import Level
from nppsim.observe.statistics import ObservationStatistics
from nppsim.plain import from_plain
from nppsim.reading import inflate, mismatch, read_json
from nppsim.replays.replay import MAX_BYTES
from rl.config.ppo import PPOConfig
from rl.config.resume import FINISHED_FILE
from rl.doctor.runs import RUN_FILE
from rl.evaluation.results import EpisodeRecord
from rl.evaluation.video import Film
from rl.experiment.record import RunRecord
from rl.experiment.report import METHODS
from rl.policy import checkpoint
from rl.policy.policy import NppPolicy
from rl.policy.weight_map import TransferReport
from rl.ppo.training_state import Checkpoints

PLAN = "plan.json"
CLONED = f"pretrain/clone{checkpoint.SUFFIX}"
DISTILLED = f"pretrain/taught{checkpoint.SUFFIX}"
MAX_KEPT_BYTES = 1 << 30  # of finished.json: the inputs of a million episodes
_REMEDY = "bring it back, or remove it, and what it stands for is done again"
_LENGTH = ("ppo.total_timesteps", "ppo.time_budget_minutes")
_EPISODE = {
    **dict.fromkeys(("level_name", "level", "category", "inputs", "outcome"), str),
    **dict.fromkeys(("level_index", "frames", "decisions", "gold"), int),
    **dict.fromkeys(("ret", "path_length"), float),
}
_RUN = {
    **dict.fromkeys(("architecture", "label", "title"), str),
    "pretrained": bool,
    "seed": int,
    "wall_time_s": float,
    "events": [{}],
    "settings": {...: {"source": str}},
    "speed": {},
    "curriculum": {},
    "played": {method: [_EPISODE] for method in METHODS},
}


class ResumeError(UserError, RuntimeError):
    """A run that cannot be gone on with; the message names the file, what is wrong and the remedy."""


@dataclass(frozen=True)
class PretrainedPolicy:
    """A policy that imitates, how it was made, and observations to compare others with it on.

    runs: level fingerprint -> actions of its shortest demonstration, int8[n].
    distillation_s: seconds of lessons in it.
    spent_before: seconds of its making, where that was before the run was interrupted.
    """

    policy: NppPolicy
    statistics: ObservationStatistics
    result: BCResult
    probe: dict[str, np.ndarray]
    runs: dict[str, np.ndarray]
    distillation_s: float = 0.0
    spent_before: float = 0.0


def save_plan(folder: Path, plan: hardware.Plan, plan_request: hardware.PlanRequest) -> None:
    """Keep the plan of a run, and what was asked of it."""
    write_json(folder / PLAN, {"wishes": asdict(plan_request), "plan": asdict(plan)})


def read_plan(folder: Path, plan_request: hardware.PlanRequest) -> hardware.Plan | None:
    """The plan of a run that has begun; None where there is none.

    plan_request: what is asked for now; its number of decisions may differ, and whether there is an evaluator.
    ResumeError if something else was asked for then, or the run needs a GPU and there is none.
    """
    path = folder / PLAN
    stored = read_facts(path)
    if not stored:
        return None
    if wrong := mismatch(stored, {"wishes": {}, "plan": {}}):
        raise ResumeError(f"{path}: {wrong}; {_REMEDY}")
    asked = {name for name, value in asdict(plan_request).items() if stored["wishes"].get(name) != value} - {
        *("total_timesteps", "evaluator")
    }
    if asked:
        raise ResumeError(
            f"{path}: this run has begun with another {' and '.join(sorted(asked))}, which cannot change: its environments "
            "and sizes are part of it; begin a new run"
        )
    plan: hardware.Plan = _decoded(hardware.Plan, stored["plan"], path)
    if plan.device == "cuda" and not torch.cuda.is_available():
        raise ResumeError(f"{path}: the run computes on a GPU, and there is none here; go on where there is one")
    return replace(plan, total_timesteps=plan_request.total_timesteps)


def save_pretrained(
    folder: Path, clone: PretrainedPolicy, frame_skip: int, config: Mapping, place: str = CLONED
) -> None:
    """Keep a policy pretrained by BC.  place: CLONED or DISTILLED."""
    made = {
        "result": clone.result.as_dict(),
        "probe": clone.probe,
        "runs": clone.runs,
        "taught_s": clone.distillation_s,
    }
    checkpoint.save(folder / place, clone.policy, frame_skip=frame_skip, config=config, training=made)


def load_pretrained(folder: Path, device: str, frame_skip: int, place: str = CLONED) -> PretrainedPolicy | None:
    """The policy that was cloned, on ``device``; None where that is still to be done.

    frame_skip: of the run.
    place: CLONED or DISTILLED.
    CheckpointError for a damaged file: without it, what made it is done again; for one of another frame skip.
    """
    path = folder / place
    if not path.is_file():
        return None
    try:
        policy, data = checkpoint.load_policy(path)
    except checkpoint.CheckpointError as error:
        raise checkpoint.CheckpointError(f"{error}; or remove it, and what made it is repeated") from error
    checkpoint.check_frame_skip(path, data, frame_skip)
    made = data["training"]
    wrong = mismatch(made, {"result": {}, "probe": {}, "runs": {}, "taught_s": float})
    if wrong or not all(isinstance(one, np.ndarray) for one in (*made["probe"].values(), *made["runs"].values())):
        raise checkpoint.CheckpointError(f"{path}: does not say how it was made ({wrong or 'no arrays'}); {_REMEDY}")
    result = _decoded(BCResult, made["result"], path)
    return PretrainedPolicy(
        policy.to(device),
        data["statistics"],
        result,
        made["probe"],
        made["runs"],
        made["taught_s"],
        spent_before=result.wall_time_s + made["taught_s"],
    )


def save_run(record: RunRecord) -> None:
    """Keep the record of a run that is over; written last, so that where it is, nothing is missing."""
    plain = {field.name: getattr(record, field.name) for field in fields(record) if field.name != "folder"}
    plain |= {
        "played": {method: [_episode(episode) for episode in episodes] for method, episodes in record.played.items()},
        "cloning": record.cloning and asdict(record.cloning),
        "transfer": record.transfer and asdict(record.transfer),
        "plan": asdict(record.plan),
        "films": [asdict(film) for film in record.films],
    }
    write_json(record.folder / FINISHED_FILE, plain)


def read_run(folder: Path, levels: list[Level]) -> RunRecord | None:
    """The record of a run that is over; None where it is not.  levels: of the final evaluation."""
    path = folder / FINISHED_FILE
    plain = read_facts(path)
    if not plain:
        return None
    wrong = mismatch(plain, _RUN)
    if not wrong and plain["played"].keys() != METHODS.keys():
        wrong = f"played should have {', '.join(METHODS)} alone"
    if wrong:
        raise ResumeError(f"{path}: {wrong}; {_REMEDY}")
    try:
        played = {
            method: [_played_again(episode, levels) for episode in episodes]
            for method, episodes in plain["played"].items()
        }
        judged = [
            sorted((one.level_index, one.category) for one in episodes) for episodes in played.values() if episodes
        ]
        if any(one != judged[0] for one in judged):
            raise ValueError("its policies did not play the same levels")
        return RunRecord(
            folder=folder,
            **plain
            | {
                "played": played,
                "cloning": _decoded(BCResult | None, plain["cloning"], path),
                "transfer": _decoded(TransferReport | None, plain["transfer"], path),
                "plan": _decoded(hardware.Plan, plain["plan"], path),
                "films": _decoded(list[Film], plain["films"], path),
            },
        )
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise _unreadable(path, error) from error


def is_extended(folder: Path, ppo: PPOConfig) -> bool:
    """Whether PPO is over in a run's folder and these settings let it go on: with more decisions or minutes than it had, and
    not less of either."""
    if not any(path.is_file() for path in _ends(folder)):
        return False
    begun = read_facts(folder / RUN_FILE)
    if wrong := mismatch(begun, {"settings": {name: {"value": (float, None)} for name in _LENGTH}}):
        raise ResumeError(f"{folder / RUN_FILE}: {wrong}; {_REMEDY}")
    before = [begun["settings"][name]["value"] for name in _LENGTH]
    limits = [(math.inf if one is None else one) for one in (*before, ppo.total_timesteps, ppo.time_budget_minutes)]
    return limits[2:] != limits[:2] and limits[2] >= limits[0] and limits[3] >= limits[1]


def reopen(folder: Path) -> None:
    """Let PPO of a run that is over go on from its newest checkpoint."""
    for path in _ends(folder):
        path.unlink(missing_ok=True)


def _ends(folder: Path) -> tuple[Path, Path]:
    """Each says that PPO of a run is over."""
    return folder / FINISHED_FILE, Checkpoints(folder / "checkpoints", keep=1).final


def _episode(episode: EpisodeRecord) -> dict[str, Any]:
    left_out = ("level", "commands", "memory")  # the one is known, the others are of use while it is judged and filmed
    plain = {field.name: getattr(episode, field.name) for field in fields(episode) if field.name not in left_out}
    return plain | {
        "level": episode.level.fingerprint,
        "inputs": base64.b64encode(zlib.compress(episode.inputs.tobytes())).decode(),
    }


def _played_again(plain: Mapping[str, Any], levels: list[Level]) -> EpisodeRecord:
    if odd := [name for name in ("level_index", "decisions", "gold") if not 0 <= plain[name] < 1 << 31]:
        raise ValueError(f"{odd[0]} of an episode cannot be {plain[odd[0]]}")
    inputs = np.frombuffer(inflate(base64.b64decode(plain["inputs"]), MAX_BYTES), np.uint8)
    level = levels[plain["level_index"]]
    if plain["level"] != level.fingerprint:
        raise ValueError(f"level {plain['level_index']} is another one now: bring the levels back in their order")
    return EpisodeRecord(**{**plain, "inputs": inputs, "level": level})


def read_facts(path: Path) -> dict[str, Any]:
    """The content of a JSON file; empty where there is none.  ResumeError for a damaged one."""
    if not path.is_file():
        return {}
    found = read_json(path, ResumeError, _REMEDY, MAX_KEPT_BYTES)
    if not isinstance(found, dict):
        raise ResumeError(f"{path}: no JSON object; {_REMEDY}")
    return found


def _decoded(kind: Any, plain: object, path: Path) -> Any:
    try:
        return from_plain(kind, plain)
    except ValueError as error:  # PlainError, or what a class says of impossible values
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> ResumeError:
    return ResumeError(f"{path}: cannot be read ({error}); {_REMEDY}")
