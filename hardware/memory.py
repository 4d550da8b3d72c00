"""Memory model of a training run.

Environments are in host memory.  The rollout buffer of num_envs x rollout_length observations, the network, its optimiser and
the activations of one minibatch are on the GPU, or in host memory without a GPU.  The memory of buffer and environments is
computed from the sizes.  The memory of the network is estimated, or measured by a trial update that the caller provides.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from nppsim.observe import layout
from nppsim.observe.stacking import NO_STACKS, Stacking

# Bytes per transition without the observation: 8 for the action; 4 each for value, reward, advantage and return; 24 each
# for the six log-probabilities of the rollout policy and those of the BC policy; 1 for the end-of-episode flag; rounded up.
TRANSITION_BYTES = 80
# Bytes of one environment without its two observations (current and final): state record, entities, movers, path fields.
# A rounded-up estimate: 0.1 GB for 1024 environments.
ENVIRONMENT_BYTES = 100_000
# Bytes of one Python process with torch, Numba and compiled kernels (0.7 GB resident on Linux), plus some for evaluation.
PROCESS_BYTES = 1_500_000_000

FLOAT_BYTES = 4
# Number of encoded graphs that a graph network caches during a rollout, and bytes per graph (about 120 nodes).
MAX_CACHED_GRAPHS = 16_384
CACHED_GRAPH_BYTES = 40_000
# Assumptions of ``estimate_update``.
PARAMETERS = 1_000_000
PARAMETERS_WITH_IMAGES = 8_000_000
LAYERS_BYTES = 64_000  # bytes of activations of the fully connected layers, per sample

PROBE_SIZES = (64, 256)  # samples of the trial updates; two sizes separate fixed bytes from bytes per sample


@dataclass(frozen=True)
class UpdateMemory:
    """Memory of one gradient step: ``fixed_bytes + bytes_per_sample * minibatch size``."""

    fixed_bytes: int  # parameters, gradients and optimiser state
    bytes_per_sample: int  # inputs and activations
    source: str  # "measurement", "estimate", or "stored figure" with details

    def total(self, samples: int) -> int:
        """Return the bytes for a minibatch of ``samples``."""
        return self.fixed_bytes + self.bytes_per_sample * samples


@dataclass(frozen=True)
class MemoryRow:
    """One row of the memory estimate."""

    where: str  # "host" or "device" (each GPU)
    name: str
    bytes: int
    how: str  # text with the formula of ``bytes`` and its numbers


@dataclass(frozen=True)
class MemoryNeeds:
    """Memory of a run as a function of its sizes."""

    observations: tuple[str, ...]  # observation keys
    update: UpdateMemory  # memory of one gradient step
    gpus: int = 0  # number of GPUs; 0: training on the CPU, in host memory
    stacking: Stacking = NO_STACKS
    cpu_processes: int = 1  # number of training processes if there are no GPUs
    evaluators: int = 0  # number of additional evaluation processes
    carried_bytes: int = 0  # bytes of recurrent state or subtask that are stored with each decision

    @property
    def processes(self) -> int:
        """Number of training processes: one per GPU, or ``cpu_processes``."""
        return self.gpus or self.cpu_processes

    @property
    def convolutions_on_cpu(self) -> bool:
        """True if convolutions run on the CPU."""
        return has_images(self.observations) and not self.gpus

    def rows(self, num_envs: int, rollout_length: int, minibatch_size: int) -> tuple[MemoryRow, ...]:
        """Return all rows of the estimate; the sizes are totals over all processes."""
        seen, carried = observation_bytes(self.observations), self.carried_bytes
        extra = f" + {carried} B carried" if carried else ""
        stacks = self.stacking.bytes(self.stacking.stacked(self.observations))
        stored = -(-num_envs // (self.gpus or 1))  # number of environments whose rollout is stored on one device
        before = f", + {stored} x {stacks} B of earlier frames" if stacks else ""
        # A rollout evaluates one batch of all environments, which needs less memory than an update of the same size.
        samples = -(-max(minibatch_size, num_envs) // self.processes)
        update, device = self.update, "device" if self.gpus else "host"
        copies = 1 if self.gpus else self.processes  # "device" is the memory of one GPU, "host" that of all processes
        decisions_each = -(-num_envs // self.processes) * rollout_length  # decisions per update and process
        graphs = copies * min(decisions_each, MAX_CACHED_GRAPHS) if "graph_state" in self.observations else 0
        rows = [
            MemoryRow(
                device,
                "rollout buffer",
                stored * (rollout_length * (seen + carried + TRANSITION_BYTES) + stacks),
                f"{stored} envs x {rollout_length} decisions x ({seen} B observation{extra} + "
                f"{TRANSITION_BYTES} B){before}",
            ),
            MemoryRow(
                "host",
                "environments",
                num_envs * (2 * (seen + stacks + carried) + ENVIRONMENT_BYTES),
                f"{num_envs} envs x (2 x ({seen + stacks} B observation{extra}) + {ENVIRONMENT_BYTES} B), estimate",
            ),
            MemoryRow(
                "host",
                "processes",
                (self.processes + self.evaluators) * PROCESS_BYTES,
                f"{self.processes + self.evaluators} x {PROCESS_BYTES} B, estimate",
            ),
            MemoryRow(
                device,
                "network update",
                copies * update.total(samples),
                f"{f'{copies} x (' if copies > 1 else ''}{update.fixed_bytes} B + {samples} samples x "
                f"{update.bytes_per_sample} B{')' if copies > 1 else ''}, {update.source}",
            ),
        ]
        if graphs:
            how = f"{graphs} graphs x {CACHED_GRAPH_BYTES} B, at most"
            rows.append(MemoryRow(device, "encoded graphs", graphs * CACHED_GRAPH_BYTES, how))
        return tuple(rows)


def total(rows: Iterable[MemoryRow], where: str) -> int:
    """Return the bytes of all rows on the host, or on each GPU.  where: "host" or "device"."""
    return sum(row.bytes for row in rows if row.where == where)


def observation_bytes(observations: Iterable[str], stacking: Stacking = NO_STACKS) -> int:
    """Return the bytes of one observation with its frame stacks.  observations: keys or short names."""
    return stacking.bytes(layout.observation_keys(observations))


def estimate_update(observations: Iterable[str], stacking: Stacking = NO_STACKS) -> UpdateMemory:
    """Estimate an upper bound of UpdateMemory from the observation layout.

    Bytes per sample: six times the inputs as float32, for inputs, convolution outputs and their gradients, plus the fully
    connected layers.  (A Nature CNN on the player's frame stores 0.8 times its input per pass.)
    Fixed bytes: weight, gradient and two Adam moments of each parameter.
    """
    keys = layout.observation_keys(observations)
    numbers = sum(math.prod(stacking.shape(key)) for key in keys)
    parameters = PARAMETERS_WITH_IMAGES if has_images(keys) else PARAMETERS
    return UpdateMemory(4 * FLOAT_BYTES * parameters, 6 * FLOAT_BYTES * numbers + LAYERS_BYTES, "estimate")


def measure_update(
    probe: Callable[[int], int], observations: Iterable[str], stacking: Stacking = NO_STACKS
) -> UpdateMemory:
    """Measure UpdateMemory by two probe updates.

    probe: function of the minibatch size that runs one update on synthetic data.  It returns the peak bytes allocated on
        the device for parameters, optimiser and activations.
    Host memory can only be measured coarsely.  Each sample is therefore assumed to need at least three times the bytes of
    its observation: for the minibatch, its converted copy and one activation.
    """
    small, large = PROBE_SIZES
    peak_small, peak_large = probe(small), probe(large)
    slope = (peak_large - peak_small) / (large - small)
    per_sample = int(max(slope, 3 * observation_bytes(observations, stacking)))
    # The line of memory over minibatch size passes through the smaller measurement.  If ``per_sample``
    # was raised to its minimum, the line is steeper and passes above the larger measurement.
    return UpdateMemory(max(peak_small - per_sample * small, 0), per_sample, "measurement")


def has_images(observations: Iterable[str]) -> bool:
    """Return True if the observations include an image, which needs convolutions and far more memory."""
    return bool(set(layout.IMAGES) & set(layout.observation_keys(observations)))
