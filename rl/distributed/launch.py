"""Start the processes of a job on this machine, as torchrun does.

    status = launch("scripts/train_and_compare.py", argv, 2)

A process that fails prints its own error message.  If a process is killed by a signal, ``launch`` raises ProcessError.
"""

import logging
import os
import signal
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import hardware
from nppsim.errors import INTERRUPTED, ConfigError, UserError
from nppsim.io.signals import ENDING
from rl.config import ExperimentConfig

SHUTDOWN_S = 600  # seconds between SIGTERM and SIGKILL, enough to write a checkpoint


class ProcessError(UserError, RuntimeError):
    """A process of the job was killed by a signal."""


def launch(program: str | Path, argv: Sequence[str], count: int) -> int:
    """Run a Python program in ``count`` processes on this machine; return 0, or the exit status of a process that failed.

    Raises ProcessError if a process was killed by a signal.
    """
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # ProcessError replaces its messages
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(SHUTDOWN_S))
    settings = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=count,
        run_id=str(uuid.uuid4()),
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
    )
    handlers = {number: signal.getsignal(number) for number in ENDING}
    try:
        elastic_launch(settings, sys.executable)("-u", str(program), *argv)
    except SignalException:
        return INTERRUPTED
    except ChildFailedError as error:
        rank, status = _cause({rank: failure.exitcode for rank, failure in error.failures.items()})
        if status > 0:
            return status
        raise ProcessError(
            f"process {rank} of {count} was killed by {signal.Signals(-status).name}, and the job has ended; continue "
            "from its newest checkpoint with --resume-from FOLDER"
        ) from None
    finally:  # because elastic_launch does not remove its handlers, which raise SignalException
        for number, handler in handlers.items():
            if handler is not None:  # None: not set by Python
                signal.signal(number, handler)
    return 0


def _cause(statuses: Mapping[int, int]) -> tuple[int, int]:
    """Return (process, exit status) of the most probable first failure.

    A process that was killed by a signal comes first, then one with an error, then one with SIGTERM, which the launcher
    sends to all processes after the first failure.
    """

    def weight(failure: tuple[int, int]) -> int:
        return 2 if failure[1] == -signal.SIGTERM else int(failure[1] > 0)

    return min(sorted(statuses.items()), key=weight)


def check_gpus(config: ExperimentConfig) -> None:
    """Raise ConfigError if --num-gpus exceeds the number of GPUs of this machine."""
    found, wanted = len(hardware.detect().gpus), config.hardware.num_gpus
    if wanted > max(found, 1):
        raise ConfigError(
            f"only {found} GPUs found; for processes on the CPU, give --num-gpus 0 --num-processes {wanted}",
            "--num-gpus",
            wanted,
        )
