"""What the processes of a job do together: means, sums of knowledge, orders of the first to the others.

    ranks = joined(backend)                # as torchrun has started this process; ``ALONE`` otherwise
    ranks.average(gradients, numbers)      # in every process at the same place
    ranks.others(function, *arguments)     # the first: each of the others calls function(its training, *arguments)
    ranks.go(value)                        # the first: the others go on, with this value from ...
    value = ranks.attend(training)         # ... the others: do what is ordered until then

The first process (rank 0) is the main job as it is without others: it decides, writes and evaluates.  The others play and
compute gradients.  With one process, ``ALONE`` answers the same calls and there is nobody to talk to.
"""

import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist

from nppsim.errors import ConfigError, UserError
from nppsim.signals import Asked

STEP = timedelta(minutes=30)  # that a process waits for another in the middle of an update
ORDER = timedelta(days=30)  # that the others wait for an order: imitation and evaluations are the first's alone
Value = TypeVar("Value")


class RanksError(UserError, RuntimeError):
    """Processes that no longer train the same; the message says which and what differs, or who is gone."""


@dataclass(frozen=True)
class Started:
    """How torchrun has started this process.

    rank, size: its number among all, and how many there are.
    local_rank, local_size: the same on this machine.
    restarts: how often the job was started anew after a failure.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    restarts: int

    @classmethod
    def from_environment(cls) -> "Started | None":
        """None in a process that nobody else belongs to."""
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        if any(name not in os.environ for name in names):
            return None
        rank, size, local_rank, local_size = (int(os.environ[name]) for name in names)
        return cls(rank, size, local_rank, local_size, int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")))


class Alone:
    """One process, and the interface of several.

    rank, size: its number, and how many there are.  machines: on how many.
    asked: who has asked the program to end, of all processes, as of the latest ``agree``.
    """

    rank, size, machines = 0, 1, 1

    def __init__(self) -> None:
        self.asked = Asked()

    def average(self, tensors: Sequence[torch.Tensor], numbers: Sequence[float] = ()) -> list[float]:
        """Set each tensor to its mean over the processes; returns the means of the numbers."""
        return list(numbers)

    def gathered(self, values: torch.Tensor) -> torch.Tensor:
        """Those of all processes, one process after the other.  values: float32[n], n the same in all."""
        return values

    def rows(self, values: np.ndarray) -> np.ndarray:
        """Those of all processes, one process after the other, as many as each may have."""
        return values

    def same(self, value: Value) -> Value:
        """What the first process has."""
        return value

    def agree(self, facts: Mapping[str, Any]) -> None:
        """RanksError in every process unless all have the same facts."""

    def others(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """What function(training, *arguments) returns in each of the others; they must be attending."""
        return []

    def go(self, value: Any) -> None:
        """Let the others go on, with a value."""

    def attend(self, training: Any) -> Any:
        """In the others: do what the first orders; returns the value with which it lets them go on."""
        raise RanksError("the first process gives orders, and waits for none: please report this")


ALONE = Alone()


class Ranks(Alone):
    """Several processes; see the module."""

    def __init__(self, started: Started, backend: str, on_gpus: bool = False):
        super().__init__()
        self.rank, self.size, self.machines = started.rank, started.size, started.size // started.local_size
        self.device = torch.device("cuda" if backend == "nccl" else "cpu")
        if on_gpus:
            torch.cuda.set_device(started.local_rank)
        with self._others_answer():
            # torchrun keeps its store when it starts the processes anew, and with it the addresses of those that are gone
            store, rank, size = next(dist.rendezvous("env://", timeout=STEP))
            store = dist.PrefixStore(f"restart {started.restarts}", store)
            dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=STEP)
            # Not the default group: modules of torch that are imported later hold on to it until Python ends (``leave``).
            self._means = dist.new_group(backend=backend, timeout=STEP)
            self._words = dist.new_group(backend="gloo", timeout=STEP)
            self._orders = dist.new_group(backend="gloo", timeout=ORDER)
        self._check()

    @property
    def name(self) -> str:
        """For messages."""
        return f"process {self.rank} of {self.size}"

    def leave(self) -> None:
        """Belong to nothing any more; the threads of gloo's that have worked end.

        One that lets go of a tensor while Python ends is aborted, and the process with it (SIGABRT).
        """
        dist.destroy_process_group()
        del self._means, self._words, self._orders  # torch has forgotten them; they end with their last reference

    def _check(self) -> None:
        """RanksError unless means, and the order of what is gathered, are those of known numbers."""
        mine, mean = torch.full((2,), float(self.rank), device=self.device), (self.size - 1) / 2
        told = self.average([mine], [float(self.rank)])
        order = [self.gathered(torch.tensor([float(self.rank)])).tolist(), self.rows(np.array([self.rank])).tolist()]
        if [*mine.tolist(), *told] != [mean] * 3 or order != [list(range(self.size))] * 2:
            raise RanksError(
                f"{self.name}: the mean of the processes' numbers is {told[0]:g} instead of {mean:g}, or they come in "
                f"another order than 0 to {self.size - 1} ({order[0]}): gradients would not be means; please report this"
            )

    @contextmanager
    def _others_answer(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            said = re.sub(r"^\[[^]]*\] *", "", str(error).strip().partition("\n")[0]).partition(". ")[0]
            raise RanksError(
                f"{self.name}: the connection to the others is lost ({said}): one has ended, and has said why, or was "
                "killed; go on from the newest checkpoint with --resume-from"
            ) from error

    def average(self, tensors: Sequence[torch.Tensor], numbers: Sequence[float] = ()) -> list[float]:
        told = torch.tensor(numbers, dtype=torch.float32, device=self.device)
        flat = torch.cat([*(tensor.flatten().to(self.device) for tensor in tensors), told])
        with self._others_answer():
            dist.all_reduce(flat, group=self._means)
        flat /= self.size
        parts = flat.split([*(tensor.numel() for tensor in tensors), len(told)])
        for tensor, part in zip(tensors, parts[:-1], strict=True):
            tensor.copy_(part.view_as(tensor))
        return parts[-1].tolist()

    def gathered(self, values: torch.Tensor) -> torch.Tensor:
        mine = values.detach().cpu().contiguous()
        everybodys = [torch.empty_like(mine) for _ in range(self.size)]
        with self._others_answer():
            dist.all_gather(everybodys, mine, group=self._words)
        return torch.cat(everybodys).to(values.device)

    def rows(self, values: np.ndarray) -> np.ndarray:
        return np.concatenate(self._all(values))

    def _all(self, value: Any) -> list[Any]:
        found: list[Any] = [None] * self.size
        with self._others_answer():
            dist.all_gather_object(found, value, group=self._words)
        return found

    def same(self, value: Value) -> Value:
        return self._sent(value, self._words)

    def _sent(self, value: Any, group: Any) -> Any:
        box = [value]
        with self._others_answer():
            dist.broadcast_object_list(box, src=0, group=group)
        return box[0]

    def agree(self, facts: Mapping[str, Any]) -> None:
        found = self._all((dict(facts), self.asked.by))
        told = [
            f"{name} of process {rank}" for rank, (theirs, _) in enumerate(found) for name in facts
            if theirs[name] != found[0][0][name]
        ]  # fmt: skip
        if told:
            raise RanksError(
                f"{', '.join(told)} is not that of process 0: they no longer train the same; go on from the newest "
                "checkpoint, and if this happens again, please report it"
            )
        for rank, (_, by) in enumerate(found):
            if by and not self.asked.by:
                self.asked.by = f"{by} (process {rank})"

    def others(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        if self.rank:
            return []
        self._sent((function, arguments), self._orders)
        return self._answers(None)[1:]

    def go(self, value: Any) -> None:
        self._sent((None, value), self._orders)

    def attend(self, training: Any) -> Any:
        while True:
            function, arguments = self._sent(None, self._orders)
            if function is None:
                return arguments
            self._answers(function(training, *arguments))

    def _answers(self, mine: Any) -> list[Any]:
        found: list[Any] = [None] * self.size
        with self._others_answer():
            dist.all_gather_object(found, mine, group=self._orders)
        return found


@contextmanager
def joined(started: Started | None, backend: str | None, device: str | None) -> Iterator[Alone]:
    """What this process belongs to, for as long as the block lasts.

    backend: None for the usual one of the device.  device: "cpu", "cuda", or None for a GPU where there is one.
    """
    if started is None or started.size == 1:
        yield ALONE
        return
    on_gpus = device != "cpu" and torch.cuda.is_available()
    if backend == "nccl" and not on_gpus:
        raise ConfigError("is for GPUs, and these processes have none; use gloo", "--distributed-backend", backend)
    if on_gpus and started.local_size > torch.cuda.device_count():
        raise ConfigError(
            f"{started.local_size} processes of this machine need a GPU each, and it has {torch.cuda.device_count()}; start "
            "as many as it has, or let them compute on the CPU (--device cpu)"
        )
    ranks = Ranks(started, backend or ("nccl" if on_gpus else "gloo"), on_gpus)
    try:
        yield ranks
    finally:
        ranks.leave()


def checksum(tensors: Mapping[str, torch.Tensor]) -> int:
    """Of all values, to hold those of one process against another's."""
    total = 0
    for tensor in tensors.values():
        total = zlib.crc32(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data, total)
    return total
