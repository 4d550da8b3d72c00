"""What is said before a hierarchical run begins."""

from collections.abc import Iterator

from rl.config import ExperimentConfig
from rl.policy.architectures import get_architecture

EASY = ("simplest", "simpler", "simple")  # categories in which a level is one subtask or two


def advice(config: ExperimentConfig) -> Iterator[str]:
    """Warnings, one per line; none for a run without subtasks."""
    names = [name for name in config.networks if get_architecture(name).subtasks]
    if not names:
        return
    told = "subtasks have gained nothing where that was measured; compare with the network without them"
    yield f"{', '.join(names)}: {told} (docs/architectures.md)"
    if not config.hierarchy.from_stage and config.curriculum.start_stage in (None, *EASY):
        yield (
            f"{', '.join(names)}: levels that are {EASY[0]} need no subtasks; with --curriculum stages, "
            "--hierarchical-from-stage medium begins without them"
        )
