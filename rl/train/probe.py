"""One probe update on made-up data: what an update of a network needs on this machine, in bytes and in seconds."""

import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

from nppsim.observe import layout
from nppsim.observe.statistics import ObservationStatistics
from rl.policy.architectures import get_architecture
from rl.policy.policy import NppPolicy, build_policy

TIMED_MINIBATCH = 512
TIMED_UPDATES = 3


def update_probe(name: str, device: str, precision: str) -> tuple[Callable[[int], int], Callable[[int], float]]:
    """(bytes, seconds): functions for ``hardware.plan``'s ``probe`` and ``thread_probe``.

    bytes(minibatch_size): peak memory of one update on the device; on the CPU, where no allocator keeps count, weights,
    gradients, optimiser state, the minibatch, and what the forward pass keeps for the backward pass.
    seconds(threads): one update of 512 samples with that many torch threads, the best of three.
    """
    observations = get_architecture(name).observations
    with torch.random.fork_rng():  # the run's own random numbers shall not depend on the probe
        policy = build_policy(name, _made_up_statistics(observations), precision=precision, device=device)

    def peak_bytes(minibatch_size: int) -> int:
        batch = _minibatch(observations, minibatch_size, device)
        if torch.device(device).type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            _update(policy, batch)
            return torch.cuda.max_memory_allocated(device)
        kept: dict[int, int] = {}

        def remember(tensor: torch.Tensor) -> torch.Tensor:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(remember, lambda tensor: tensor):
            _update(policy, batch)
        weights = sum(p.numel() * p.element_size() for p in policy.parameters())
        inputs = sum(values.numel() * values.element_size() for values in batch.values())
        return 4 * weights + inputs + sum(kept.values())  # weights, gradients and Adam's two moments

    def seconds(threads: int) -> float:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        batch = _minibatch(observations, TIMED_MINIBATCH, device)
        _update(policy, batch)
        times = []
        for _ in range(TIMED_UPDATES):
            begin = time.perf_counter()
            _update(policy, batch)
            times.append(time.perf_counter() - begin)
        torch.set_num_threads(before)
        return min(times)

    return peak_bytes, seconds


def _update(policy: NppPolicy, batch: dict[str, torch.Tensor]) -> None:
    """Forward, backward and an optimiser step of PPO's size."""
    logits, values = policy.logits_and_values(batch)
    loss = F.log_softmax(logits, dim=1)[:, 0].mean() + values.square().mean()
    policy.optimizer.zero_grad(set_to_none=True)
    loss.backward()
    policy.optimizer.step()


def _minibatch(observations, size: int, device: str) -> dict[str, torch.Tensor]:
    specs = (layout.SPECS[key] for key in observations)
    return {
        spec.key: torch.ones((size, *spec.shape), dtype=getattr(torch, spec.dtype), device=device) for spec in specs
    }


def _made_up_statistics(observations) -> ObservationStatistics:
    statistics = ObservationStatistics(observations)
    batch = _minibatch(observations, 2, "cpu")
    statistics.update({key: batch[key].numpy() for key in statistics.float_keys})
    return statistics
