"""The errors that are for the user to mend: scripts print them as one line and exit with status 2.

Anything else that is raised is a bug of ours, and is shown with its traceback.
"""

import sys
from collections.abc import Callable

import bc.dataset
import bc.demonstrations
import bc.train
from hardware import PlanError
from nppsim.level import LevelError
from nppsim.levelset import LevelSetError
from nppsim.observe.statistics import StatisticsError
from nppsim.replay import ReplayError
from rl.architectures import ArchitectureError, ObservationError
from rl.checkpoint import CheckpointError
from rl.config import ConfigError, redact
from rl.events import EventsError
from rl.ppo import DivergedError
from rl.results import ResultsError
from rl.upload import UploadError
from rl.video import VideoError

USER_ERRORS = (
    (ArchitectureError, CheckpointError, ConfigError, DivergedError, EventsError, LevelError, LevelSetError)
    + (ObservationError, PlanError, ReplayError, ResultsError, StatisticsError, UploadError, VideoError)
    + (bc.dataset.DatasetError, bc.demonstrations.DemonstrationError, bc.train.ConfigError, bc.train.TrainingError)
    + (OSError,)  # no space left, no permission: the message names the file
)


def exit_status(job: Callable[[], object], *, debug: bool) -> int:
    """Run ``job`` and return the exit status: 0, 2 after "error: ..." on stderr, 130 after Ctrl-C.

    debug: let errors through, with their traceback.
    """
    try:
        job()
    except KeyboardInterrupt as interruption:
        print(
            f"\ninterrupted{': ' if interruption.args else ''}{''.join(map(str, interruption.args))}", file=sys.stderr
        )
        return 130
    except USER_ERRORS as error:
        if debug:
            raise
        print(f"error: {redact(str(error))}", file=sys.stderr)
        return 2
    return 0
