"""Benchmark of memory and speed of an update on this machine, on synthetic data, for the hardware plan.

    benchmark = UpdateBenchmark("mlp_baseline", "cpu", "float32")
    update = hardware.measure_update(benchmark.peak_bytes, observations)
    plan = hardware.plan(..., update=update, benchmark=stored_timings(benchmark, machine))

Timings determine the number of threads and the precision, which change rounding.  New timings could therefore change the
results of a run with the same seed.  So timings are stored and reused until ``scripts/hardware_plan.py --measure`` replaces
them, or the code changes.
"""

import datetime
import functools
import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from bc.thread_pool import ThreadPool
from hardware import Benchmark, ComputeOption, Machine, Timings
from nppsim._numba.cache import CACHE_FOLDER
from nppsim.actions import NUM_ACTIONS
from nppsim.bank import LevelBank
from nppsim.errors import UserError
from nppsim.generate import CATEGORIES, generate
from nppsim.io.files import write_json
from nppsim.io.reading import read_object
from nppsim.observe import layout
from nppsim.observe.graph import register_bank, state_at_start
from nppsim.observe.stacking import NO_STACKS, Stacking
from nppsim.observe.statistics import ObservationStatistics
from nppsim.parallel.workers import OtherPrograms
from rl.config.ppo import MEMORY_SEGMENT
from rl.policy.architectures import get_architecture
from rl.policy.policy import NppPolicy, build_policy
from rl.policy.recurrent import FOLLOWS, RECURRENT_STATE
from rl.ppo.losses import Losses, LossWeights, Samples, ppo_losses, set_gradients

ROUNDS = 6  # updates per candidate; only the fastest counts, as other programs may interfere
ENOUGH_SECONDS = 4.0  # time after which no further round begins
GRAPH_LEVELS = 64  # number of generated levels for graph networks
# Categories of these levels.  The costs in hardware/data.toml were measured with these categories.
GRAPH_CATEGORIES = tuple(name for name in CATEGORIES if name != "campaign_like")
DECISIONS_PER_GRAPH = 4  # number of consecutive decisions with the same graph; in real minibatches about six
WEIGHTS = LossWeights(clip_range=0.2, vf_coef=0.5, ent_coef=0.01)
FILE = CACHE_FOLDER.parent / "timings.json"  # beside the compiled kernels
_TIMED_FILES = ("bc/thread_pool.py", "rl/policy/*.py", "rl/ppo/losses.py", "rl/ppo/update_benchmark.py")
_REMEDY = "delete it; the measurements are then repeated"
# Shape of the file for ``mismatch``: conditions of the measurement -> fields of ``hardware.Timings``.
TIMINGS = {...: {"wall": [float], "processor": [float], "others": float, "date": str}}


class TimingsError(UserError, ValueError):
    """A file of timings that cannot be read."""


class UpdateBenchmark:
    """Updates of a network on synthetic data.  They do not change the caller's random generators.

    name: name of the architecture.
    device: device of training.
    precision: precision of training, for ``peak_bytes``.
    """

    def __init__(self, name: str, device: str, precision: str):
        self.name, self.device, self.precision = name, device, precision
        self.architecture = get_architecture(name)
        keys = self.architecture.observations
        statistics = ObservationStatistics(keys)
        ones = _observations(keys, 2, "cpu")
        statistics.update({key: ones[key].numpy() for key in statistics.float_keys})
        with torch.random.fork_rng():
            self.policy = build_policy(name, statistics, precision=precision, device=device)

    def peak_bytes(self, minibatch_size: int) -> int:
        """Return the peak memory of one update on the device, in bytes.

        The allocator of the CPU has no statistics.  On a CPU, the result is the sum of weights, gradients, optimiser state,
        minibatch, and tensors saved for the backward pass.
        """
        self.policy.precision = self.precision
        minibatch = self._minibatch(minibatch_size)
        if torch.device(self.device).type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
            _update(self.policy, minibatch, ThreadPool(1))
            return torch.cuda.max_memory_allocated(self.device)
        weights = sum(_bytes(parameter) for parameter in self.policy.parameters())
        inputs = sum(_bytes(values) for values in minibatch.obs.values())
        return 4 * weights + inputs + self._saved_bytes(minibatch)  # weights, gradients and Adam's two moments

    def _saved_bytes(self, minibatch: "_Minibatch") -> int:
        """Return the bytes that the forward pass saves for the backward pass; shared memory counts once."""
        saved: dict[int, int] = {}

        def count(tensor: torch.Tensor) -> torch.Tensor:
            saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            _update(self.policy, minibatch, ThreadPool(1))
        return sum(saved.values())

    def benchmark(self, minibatch_size: int, candidates: Sequence[ComputeOption]) -> Timings:
        """Time updates of all candidates in turn, so that other programs affect all of them."""
        minibatch = self._minibatch(minibatch_size)
        pools = [ThreadPool(candidate.threads) for candidate in candidates]
        wall, processor = np.full((2, ROUNDS, len(candidates)), np.inf)
        others, begin = OtherPrograms(), time.perf_counter()
        for number in range(ROUNDS):
            for i, (candidate, pool) in enumerate(zip(candidates, pools, strict=True)):
                self.policy.precision = candidate.precision
                before, cpu_before = time.perf_counter(), time.process_time()
                _update(self.policy, minibatch, pool)
                wall[number, i], processor[number, i] = time.perf_counter() - before, time.process_time() - cpu_before
            if number and time.perf_counter() - begin > ENOUGH_SECONDS:  # the first round warms up
                break
        return Timings(wall.min(axis=0).tolist(), processor.min(axis=0).tolist(), others.share())

    def _minibatch(self, size: int) -> "_Minibatch":
        """Return a synthetic minibatch, in segments for a recurrent network."""
        network, device = self.architecture, self.device
        zeros = torch.zeros(size, device=device)
        log_probs = torch.full((size, NUM_ACTIONS), 1 / NUM_ACTIONS, device=device).log()
        samples = Samples(zeros.long(), log_probs, zeros, zeros)
        index = torch.arange(size, device=device)
        obs = _observations(network.observations, size, device, network.stacking)
        if network.memory:
            obs[RECURRENT_STATE] = torch.zeros((size, network.memory), device=device)
            obs[FOLLOWS] = index % MEMORY_SEGMENT != 0
        return _Minibatch(obs, samples, index, MEMORY_SEGMENT if network.memory else 1)


@dataclass(frozen=True)
class _Minibatch:
    """Observations and samples of a minibatch, the indices of its decisions, and the length of segments."""

    obs: Mapping[str, torch.Tensor]
    samples: Samples
    index: torch.Tensor
    segment: int

    def observations(self, index: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return copies of the observations of the decisions ``index``, as a rollout buffer does."""
        return {key: values.index_select(0, index) for key, values in self.obs.items()}


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _update(policy: NppPolicy, batch: _Minibatch, pool: ThreadPool) -> None:
    """Compute gradients and make a step of the optimiser, as PPO does."""

    def losses(observations: Mapping[str, torch.Tensor], samples: Samples) -> Losses[torch.Tensor]:
        return ppo_losses(*policy.logits_and_values(observations), samples, WEIGHTS)

    set_gradients(policy, pool, batch.observations, batch.samples, [batch.index], losses, segment=batch.segment)
    policy.optimizer.step()


def _observations(
    keys: tuple[str, ...], size: int, device: str, stacking: Stacking = NO_STACKS
) -> dict[str, torch.Tensor]:
    """Return observations filled with ones, except for graphs, which are those of generated levels."""
    obs = {
        key: torch.ones((size, *stacking.shape(key)), dtype=getattr(torch, layout.SPECS[key].dtype), device=device)
        for key in keys
        if key != "graph_state"
    }
    if "graph_state" in keys:
        obs["graph_state"] = torch.from_numpy(graph_states(size)).to(device)
    return obs


@functools.cache
def _graph_bank() -> LevelBank:
    categories = [GRAPH_CATEGORIES[seed % len(GRAPH_CATEGORIES)] for seed in range(GRAPH_LEVELS)]
    bank = LevelBank([generate(category, seed)[0] for seed, category in enumerate(categories)])
    register_bank(bank)
    return bank


def graph_states(rows: int) -> np.ndarray:
    """Return ``graph_state`` int64[rows, 8] at the start of generated levels, DECISIONS_PER_GRAPH rows per level."""
    bank = _graph_bank()
    return np.stack([state_at_start(bank, row // DECISIONS_PER_GRAPH % GRAPH_LEVELS) for row in range(rows)])


def stored_timings(benchmark: UpdateBenchmark, machine: Machine, measure: bool = False) -> Benchmark:
    """Return a benchmark that stores its timings by network, machine, size and version of the code, and reuses them.

    measure: True to run the benchmark again and replace stored timings.
    The benchmark raises TimingsError for a damaged file of timings.
    """

    def timings_of(minibatch_size: int, candidates: list[ComputeOption]) -> Timings:
        names = ", ".join(f"{candidate.precision} by {candidate.threads}" for candidate in candidates)
        key = f"{benchmark.name}, update of {minibatch_size}: {names}; {machine_key(machine)}"
        if key not in (stored := read_measurements(FILE, TIMINGS)) or measure:
            made = benchmark.benchmark(minibatch_size, candidates)._replace(date=datetime.date.today().isoformat())
            # Another process may have added timings meanwhile.
            stored = read_measurements(FILE, TIMINGS) | {key: made._asdict()}
            write_json(FILE, stored)
        timings = Timings(**stored[key])
        if {len(timings.wall), len(timings.processor)} != {len(candidates)}:
            raise TimingsError(f"{FILE}: {key}: expected {len(candidates)} timings; {_REMEDY}")
        return timings

    return timings_of


def machine_key(machine: Machine) -> str:
    """Return the conditions under which stored measurements are valid: processor, cores, torch version, timed code."""
    return f"{machine.cpu}, {machine.cores} cores, torch {torch.__version__}, code {code_digest()}"


@functools.cache
def code_digest() -> str:
    """Return a digest (8 hex characters) of the source code that is timed."""
    root, digest = Path(__file__).parents[2], hashlib.sha256()
    for path in sorted(path for pattern in _TIMED_FILES for path in root.glob(pattern)):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:8]


def read_measurements(file: Path, shape: dict) -> dict[str, dict]:
    """Read stored measurements by key; {} if the file does not exist.  Raises TimingsError for a damaged file.

    shape: shape of the content, see ``nppsim.io.reading.mismatch``.
    """
    return read_object(file, TimingsError, _REMEDY, shape=shape)
