"""One probe update on made-up data: what an update of a network needs on this machine, in bytes and in seconds."""

import time

import torch
import torch.nn.functional as F

from nppsim.observe import layout
from nppsim.observe.statistics import ObservationStatistics
from rl.policy.architectures import get_architecture
from rl.policy.policy import NppPolicy, build_policy

TIMED_MINIBATCH = 512  # decisions; PPO's usual order of magnitude
TIMED_UPDATES = 3  # the fastest counts


class UpdateProbe:
    """Updates of a network on made-up data: ``peak_bytes`` and ``seconds`` are what ``hardware.plan`` measures with.

    name: of the architecture.
    device, precision: as in training.
    The caller's random numbers do not depend on it.
    """

    def __init__(self, name: str, device: str, precision: str):
        self.device = device
        self.observations = get_architecture(name).observations
        with torch.random.fork_rng():
            self.policy = build_policy(name, _made_up_statistics(self.observations), precision=precision, device=device)

    def peak_bytes(self, minibatch_size: int) -> int:
        """Peak memory of one update on the device.

        On the CPU, where no allocator keeps count: weights, gradients, optimiser state, the minibatch, and what the
        forward pass keeps for the backward pass.
        """
        batch = _minibatch(self.observations, minibatch_size, self.device)
        if torch.device(self.device).type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
            _update(self.policy, batch)
            return torch.cuda.max_memory_allocated(self.device)
        weights = sum(_bytes(parameter) for parameter in self.policy.parameters())
        inputs = sum(_bytes(values) for values in batch.values())
        return 4 * weights + inputs + self._kept_bytes(batch)  # weights, gradients and Adam's two moments

    def _kept_bytes(self, batch: dict[str, torch.Tensor]) -> int:
        """What an update keeps from the forward to the backward pass; tensors that share memory count once."""
        kept: dict[int, int] = {}

        def remember(tensor: torch.Tensor) -> torch.Tensor:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(remember, lambda tensor: tensor):
            _update(self.policy, batch)
        return sum(kept.values())

    def seconds(self, threads: int) -> float:
        """Seconds of an update of 512 decisions with that many torch threads, the best of three."""
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        batch = _minibatch(self.observations, TIMED_MINIBATCH, self.device)
        _update(self.policy, batch)
        times = []
        for _ in range(TIMED_UPDATES):
            begin = time.perf_counter()
            _update(self.policy, batch)
            times.append(time.perf_counter() - begin)
        torch.set_num_threads(before)
        return min(times)


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _update(policy: NppPolicy, batch: dict[str, torch.Tensor]) -> None:
    """Forward, backward and an optimiser step of PPO's size."""
    logits, values = policy.logits_and_values(batch)
    loss = F.log_softmax(logits, dim=1)[:, 0].mean() + values.square().mean()
    policy.optimizer.zero_grad(set_to_none=True)
    loss.backward()
    policy.optimizer.step()


def _minibatch(observations: tuple[str, ...], size: int, device: str) -> dict[str, torch.Tensor]:
    specs = (layout.SPECS[key] for key in observations)
    return {
        spec.key: torch.ones((size, *spec.shape), dtype=getattr(torch, spec.dtype), device=device) for spec in specs
    }


def _made_up_statistics(observations: tuple[str, ...]) -> ObservationStatistics:
    statistics = ObservationStatistics(observations)
    batch = _minibatch(observations, 2, "cpu")
    statistics.update({key: batch[key].numpy() for key in statistics.float_keys})
    return statistics
