"""Processes of one training, which all run the same program; rank 0 also imitates, evaluates and writes files.

    with process_group(started, backend, device) as ranks:   # ``SINGLE_PROCESS`` unless torchrun started this process
        ranks.all_reduce_mean(gradients, numbers)     # all processes call a method together
        value = ranks.broadcast(decide() if not ranks.rank else None)

The methods wrap collectives of ``torch.distributed``; a lost connection raises RanksError with the name of this process.
"""

import os
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist

from nppsim.errors import ConfigError, UserError
from nppsim.io.signals import StopRequest

COLLECTIVE_TIMEOUT = timedelta(minutes=30)  # of all other collective operations
BROADCAST_TIMEOUT = timedelta(days=30)  # of ``broadcast``: other ranks wait while rank 0 imitates or evaluates
Value = TypeVar("Value")


class RanksError(UserError, RuntimeError):
    """The connection was lost, or the processes have different parameters."""


@dataclass(frozen=True)
class TorchrunEnvironment:
    """Rank and world size from the environment variables of torchrun.

    rank, size: number of this process among all processes, and number of all processes.
    local_rank, local_size: number of this process among those on this machine, and the number of those.
    restarts: number of restarts of the job after failures.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    restarts: int

    @classmethod
    def from_environment(cls) -> "TorchrunEnvironment | None":
        """Read the environment; None unless torchrun started this process."""
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        if any(name not in os.environ for name in names):
            return None
        rank, size, local_rank, local_size = (int(os.environ[name]) for name in names)
        return cls(rank, size, local_rank, local_size, int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")))


class SingleProcess:
    """Interface of ``Ranks`` for training in a single process.

    stop: request to stop the current training.
    """

    rank, size, machines = 0, 1, 1

    def __init__(self) -> None:
        self.stop = StopRequest()

    @property
    def name(self) -> str:
        """Rank and number of processes, for messages."""
        return f"process {self.rank} of {self.size}"

    def all_reduce_mean(self, tensors: Sequence[torch.Tensor], numbers: Sequence[float] = ()) -> list[float]:
        """Replace each tensor by its mean over the processes; return the means of the numbers."""
        return list(numbers)

    def all_gather(self, values: torch.Tensor) -> torch.Tensor:
        """Concatenate the values of all processes by rank.  values: float32[n] with the same n in all processes."""
        return values

    def all_gather_rows(self, values: np.ndarray) -> np.ndarray:
        """Concatenate the arrays of all processes by rank; their lengths may differ."""
        return values

    def broadcast(self, value: Any) -> Any:
        """Return the value that rank 0 has passed to this method; it is pickled."""
        return value

    def all_gather_objects(self, value: Value) -> list[Value]:
        """Return the values of all processes by rank; they are pickled."""
        return [value]

    def check_equal(self, values: Mapping[str, Any]) -> None:
        """Raise RanksError in every process if the values of ``values`` differ between processes."""

    def share_stop(self, stop: StopRequest) -> None:
        """Copy a stop request of any process to all processes."""


SINGLE_PROCESS = SingleProcess()


class Ranks(SingleProcess):
    """Process group of several processes."""

    def __init__(self, started: TorchrunEnvironment, backend: str, on_gpus: bool = False):
        super().__init__()
        self.rank, self.size, self.machines = started.rank, started.size, started.size // started.local_size
        self.device = torch.device("cuda" if backend == "nccl" else "cpu")
        if on_gpus:
            torch.cuda.set_device(started.local_rank)
        with self._connection():
            # After a restart, torchrun's store has the addresses of ended processes, so each restart has its own prefix.
            store, rank, size = next(dist.rendezvous("env://", timeout=COLLECTIVE_TIMEOUT))
            store = dist.PrefixStore(f"restart {started.restarts}", store)
            dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=COLLECTIVE_TIMEOUT)
            # Not the default group, to which torch modules refer until Python exits (see ``leave``).
            self._means = dist.new_group(backend=backend, timeout=COLLECTIVE_TIMEOUT)
            self._data = dist.new_group(backend="gloo", timeout=COLLECTIVE_TIMEOUT)
            self._broadcasts = dist.new_group(backend="gloo", timeout=BROADCAST_TIMEOUT)

    def leave(self) -> None:
        """Destroy the groups, which ends gloo's threads.

        A gloo thread that frees a tensor during Python's exit aborts the process (SIGABRT).
        """
        dist.destroy_process_group()
        del self._means, self._data, self._broadcasts

    @contextmanager
    def _connection(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            reason = re.sub(r"^\[[^]]*\] *", "", str(error).strip().partition("\n")[0]).partition(". ")[0]
            raise RanksError(
                f"{self.name}: connection to the other processes lost ({reason}); one of them failed or was killed, see its "
                "output; continue from the newest checkpoint with --resume-from"
            ) from error

    def all_reduce_mean(self, tensors: Sequence[torch.Tensor], numbers: Sequence[float] = ()) -> list[float]:
        scalars = torch.tensor(numbers, dtype=torch.float32, device=self.device)
        flat = torch.cat([*(tensor.flatten().to(self.device) for tensor in tensors), scalars])
        with self._connection():
            dist.all_reduce(flat, group=self._means)
        flat /= self.size
        parts = flat.split([*(tensor.numel() for tensor in tensors), len(scalars)])
        for tensor, part in zip(tensors, parts[:-1], strict=True):
            tensor.copy_(part.view_as(tensor))
        return parts[-1].tolist()

    def all_gather(self, values: torch.Tensor) -> torch.Tensor:
        mine = values.detach().cpu().contiguous()
        parts = [torch.empty_like(mine) for _ in range(self.size)]
        with self._connection():
            dist.all_gather(parts, mine, group=self._data)
        return torch.cat(parts).to(values.device)

    def all_gather_rows(self, values: np.ndarray) -> np.ndarray:
        return np.concatenate(self.all_gather_objects(values))

    def all_gather_objects(self, value: Value) -> list[Value]:
        values: list[Any] = [None] * self.size
        with self._connection():
            dist.all_gather_object(values, value, group=self._data)
        return values

    def broadcast(self, value: Any) -> Any:
        values = [value]
        with self._connection():
            dist.broadcast_object_list(values, src=0, group=self._broadcasts)
        return values[0]

    def check_equal(self, values: Mapping[str, Any]) -> None:
        gathered = self.all_gather_objects(dict(values))
        different = [
            f"{name} of process {rank}" for rank, theirs in enumerate(gathered) for name in values
            if theirs[name] != gathered[0][name]
        ]  # fmt: skip
        if different:
            raise RanksError(
                f"{', '.join(different)} differs from process 0: the processes have diverged; continue from the newest "
                "checkpoint with --resume-from"
            )

    def share_stop(self, stop: StopRequest) -> None:
        for rank, by in enumerate(self.all_gather_objects(stop.by)):
            if by and not stop.by:
                stop.by = f"{by} (process {rank})"


@contextmanager
def process_group(
    started: TorchrunEnvironment | None, backend: str | None, device: str | None
) -> Iterator[SingleProcess]:
    """Join the process group; leave it at the end of the block.

    backend: "nccl" or "gloo"; None: nccl on GPUs and gloo on CPUs.
    device: "cpu" or "cuda"; None: a GPU if there is one.
    Raises ConfigError if there are too few GPUs, or none for nccl.
    """
    if started is None or started.size == 1:
        yield SINGLE_PROCESS
        return
    on_gpus = device != "cpu" and torch.cuda.is_available()
    if backend == "nccl" and not on_gpus:
        raise ConfigError("needs GPUs, and these processes use the CPU; use gloo", "--distributed-backend", backend)
    if on_gpus and started.local_size > torch.cuda.device_count():
        raise ConfigError(
            f"{started.local_size} processes on this machine need one GPU each, and it has {torch.cuda.device_count()}; "
            "start fewer, or use --device cpu"
        )
    ranks = Ranks(started, backend or ("nccl" if on_gpus else "gloo"), on_gpus)
    try:
        yield ranks
    finally:
        ranks.leave()


def checksum(tensors: Mapping[str, torch.Tensor]) -> int:
    """Return the CRC-32 of all values, to compare processes."""
    total = 0
    for tensor in tensors.values():
        total = zlib.crc32(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data, total)
    return total


def check_agreement(training: Any) -> None:
    """Raise RanksError if numbers of updates, weights or curricula differ between processes."""
    values = {"updates": training.updates, "decisions": training.num_timesteps, "stage": training.sampler.stage}
    if training.ranks.size > 1:  # one process needs no hashes, which take time
        weights, curriculum = checksum(training.policy.state_dict()), training.sampler.common_digest()
        values |= {"weights": weights, "curriculum": curriculum}
    training.ranks.check_equal(values)
