"""Probe updates on made-up data: what an update of a network needs on this machine, in bytes and in seconds."""

import functools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from hardware import Candidate, Timings
from hardware.thread_pool import ThreadPool
from nppsim.actions import NUM_ACTIONS
from nppsim.bank import LevelBank
from nppsim.generate import CATEGORIES, generate
from nppsim.observe import layout
from nppsim.observe.graph import announce, state_at_start
from nppsim.observe.stacking import NO_STACKS, Stacking
from nppsim.observe.statistics import ObservationStatistics
from nppsim.workers import OtherPrograms
from rl.config.ppo import MEMORY_SEGMENT
from rl.policy.architectures import get_architecture
from rl.policy.policy import NppPolicy, build_policy
from rl.policy.recurrent import FOLLOWS, MEMORY
from rl.ppo.losses import LossWeights, Samples, set_gradients

ROUNDS = 6  # updates per candidate; the fastest counts, as somebody else may want the processor now and then
ENOUGH_SECONDS = 4.0  # of timing; no other round begins after that
GRAPH_LEVELS = 64  # generated levels of all categories, for graph networks
DECISIONS_PER_GRAPH = 4  # consecutive; a minibatch of a rollout has about six
SETTINGS = LossWeights(clip_range=0.2, vf_coef=0.5, ent_coef=0.01)


class UpdateProbe:
    """Updates of a network on made-up data: ``peak_bytes`` and ``benchmark`` are what ``hardware.plan`` measures with.

    name: of the architecture.
    device, precision: as in training; the precision only for ``peak_bytes``.
    The caller's random numbers do not depend on it.
    """

    def __init__(self, name: str, device: str, precision: str):
        self.name, self.device, self.precision = name, device, precision
        architecture = get_architecture(name)
        self.observations, self.stacking, self.memory = (
            architecture.observations,
            architecture.stacking,
            architecture.memory,
        )
        with torch.random.fork_rng():
            self.policy = build_policy(name, _made_up_statistics(self.observations), precision=precision, device=device)

    def peak_bytes(self, minibatch_size: int) -> int:
        """Peak memory of one update on the device.

        On the CPU, where no allocator keeps count: weights, gradients, optimiser state, the minibatch, and what the
        forward pass keeps for the backward pass.
        """
        self.policy.precision = self.precision
        minibatch = self._made_up(minibatch_size)
        if torch.device(self.device).type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
            _update(self.policy, minibatch, ThreadPool(1))
            return torch.cuda.max_memory_allocated(self.device)
        weights = sum(_bytes(parameter) for parameter in self.policy.parameters())
        inputs = sum(_bytes(values) for values in minibatch.obs.values())
        return 4 * weights + inputs + self._kept_bytes(minibatch)  # weights, gradients and Adam's two moments

    def _made_up(self, size: int) -> "_Minibatch":
        return _Minibatch.made_up(self.observations, self.stacking, self.memory, size, self.device)

    def _kept_bytes(self, minibatch: "_Minibatch") -> int:
        """What an update keeps from the forward to the backward pass; tensors that share memory count once."""
        kept: dict[int, int] = {}

        def remember(tensor: torch.Tensor) -> torch.Tensor:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(remember, lambda tensor: tensor):
            _update(self.policy, minibatch, ThreadPool(1))
        return sum(kept.values())

    def benchmark(self, minibatch_size: int, candidates: Sequence[Candidate]) -> Timings:
        """Updates per candidate; they alternate, so that all meet the same disturbances."""
        minibatch = self._made_up(minibatch_size)
        pools = [ThreadPool(candidate.threads) for candidate in candidates]
        wall, processor = np.full((2, ROUNDS, len(candidates)), np.inf)
        others, begin = OtherPrograms(), time.perf_counter()
        for number in range(ROUNDS):
            for i, (candidate, pool) in enumerate(zip(candidates, pools, strict=True)):
                self.policy.precision = candidate.precision
                before, spent = time.perf_counter(), time.process_time()
                _update(self.policy, minibatch, pool)
                wall[number, i], processor[number, i] = time.perf_counter() - before, time.process_time() - spent
            if number and time.perf_counter() - begin > ENOUGH_SECONDS:  # the first round warms up
                break
        return Timings(wall.min(axis=0).tolist(), processor.min(axis=0).tolist(), others.share())


@dataclass(frozen=True)
class _Minibatch:
    """Observations and decisions of a minibatch, the order that they are used in, and how many of them stay together."""

    obs: Mapping[str, torch.Tensor]
    samples: Samples
    index: torch.Tensor
    segment: int

    @staticmethod
    def made_up(keys: tuple[str, ...], stacking: Stacking, memory: int, size: int, device: str) -> "_Minibatch":
        """So many decisions, all alike; with a memory of so many numbers, in segments."""
        nothing = torch.zeros(size, device=device)
        indifferent = torch.full((size, NUM_ACTIONS), 1 / NUM_ACTIONS, device=device).log()
        samples = Samples(nothing.long(), indifferent, nothing, nothing)
        index = torch.arange(size, device=device)
        obs = _ones(keys, size, device, stacking)
        if memory:
            obs |= {MEMORY: torch.zeros((size, memory), device=device), FOLLOWS: index % MEMORY_SEGMENT != 0}
        return _Minibatch(obs, samples, index, MEMORY_SEGMENT if memory else 1)

    def observations(self, index: torch.Tensor) -> dict[str, torch.Tensor]:
        """Those of the decisions ``index``; copied, as from a rollout."""
        return {key: values.index_select(0, index) for key, values in self.obs.items()}


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _update(policy: NppPolicy, minibatch: _Minibatch, pool: ThreadPool) -> None:
    """Gradients and a step of the optimiser, as in PPO."""
    made, seen = minibatch, minibatch.observations
    set_gradients(policy, pool, seen, made.samples, made.index, SETTINGS, segment=made.segment)
    policy.optimizer.step()


def _ones(keys: tuple[str, ...], size: int, device: str, stacking: Stacking = NO_STACKS) -> dict[str, torch.Tensor]:
    ones = {
        key: torch.ones((size, *stacking.shape(key)), dtype=getattr(torch, layout.SPECS[key].dtype), device=device)
        for key in keys
        if key != "graph_state"
    }
    graphs = {"graph_state": torch.from_numpy(graph_states(size)).to(device)} if "graph_state" in keys else {}
    return {**ones, **graphs}


def _made_up_statistics(keys: tuple[str, ...]) -> ObservationStatistics:
    statistics = ObservationStatistics(keys)
    batch = _ones(keys, 2, "cpu")
    statistics.update({key: batch[key].numpy() for key in statistics.float_keys})
    return statistics


@functools.cache
def _graph_bank() -> LevelBank:
    bank = LevelBank([generate(CATEGORIES[seed % len(CATEGORIES)], seed)[0] for seed in range(GRAPH_LEVELS)])
    announce(bank)
    return bank


def graph_states(rows: int) -> np.ndarray:
    """``graph_state`` int64[rows, 8] at the start of generated levels, DECISIONS_PER_GRAPH rows of each in turn."""
    bank = _graph_bank()
    return np.stack([state_at_start(bank, row // DECISIONS_PER_GRAPH % GRAPH_LEVELS) for row in range(rows)])
