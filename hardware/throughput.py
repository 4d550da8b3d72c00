"""Estimates of the memory and speed of networks, from figures in ``data.toml``, for plans without a measurement.

    costs = network_costs("gcn", keys)                        # memory of an update, processor time per sample
    speed = model_throughput(costs.sample_us, MemoryNeeds(keys, costs.update), machine, precision="bf16", epochs=3)
    speed(Sizes(512, 64, 4096))                               # decisions per second of PPO

The time of a rollout and its update is linear in the sizes: a fixed time per step of all environments and per gradient step
(Python, launches of GPU kernels), and a time per decision and per sample.  Coefficients of CPUs are from two cores of an
EPYC, those of GPUs from one H200, scaled by the memory bandwidth of other GPUs.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from hardware.machine import DATA, Machine
from hardware.memory import MemoryNeeds, UpdateMemory, estimate_update, has_images, observation_bytes
from nppsim.observe import layout
from nppsim.observe.stacking import NO_STACKS, Stacking

_SPEED = DATA["speed"]
EPOCHS = 3  # passes over the decisions of an update
EPOCHS_IMAGES_ON_CPU = 2
# Bytes of memory per byte of stacked frames: one each for a gathered pixel, its crop and its patch.
BYTES_PER_STACKED_BYTE = 3


class Sizes(NamedTuple):
    """Sizes of a run; num_envs and minibatch_size are totals over all processes, rollout_length is in decisions."""

    num_envs: int
    rollout_length: int
    minibatch_size: int


@dataclass(frozen=True)
class NetworkCosts:
    """Costs of an update of a network.

    update: memory of a gradient step in float32 on the CPU.
    sample_us: processor time of a gradient step per sample in bf16 on the reference CPU, in microseconds of one core.
    """

    update: UpdateMemory
    sample_us: float
    source: str  # description of the figures


def network_costs(architecture: str, observations: Iterable[str], stacking: Stacking = NO_STACKS) -> NetworkCosts:
    """Return stored costs of a shipped architecture, and estimates for other ones.

    observations, stacking: observation keys and frame stacking of the architecture.
    For suffixes (NAME+gru, NAME+subtasks, frame stacks), measured additional memory is added; NAME+mirror doubles the
    memory per sample; deep heads are ignored.  The time of networks with suffixes, and of unknown networks, is estimated
    in proportion to the memory per sample.
    """
    keys = layout.observation_keys(observations)
    plain, *suffixes = architecture.split("+")
    suffixes = [suffix for suffix in suffixes if not suffix.startswith("deep")]
    if plain not in DATA["networks"]:
        update = estimate_update(keys, stacking)
        _, bytes_of_similar, us_of_similar = DATA["networks"]["mlp_baseline" if has_images(keys) else "vision_free"]
        sample_us = us_of_similar * update.bytes_per_sample / bytes_of_similar
        return NetworkCosts(update, sample_us, "estimate from the observation layout")
    fixed, plain_per_sample, plain_us = DATA["networks"][plain]
    frames = observation_bytes(keys, stacking) - observation_bytes(keys)
    per_sample = plain_per_sample + BYTES_PER_STACKED_BYTE * frames
    for name, (fixed_more, more) in DATA["suffixes"].items():
        if any(suffix.startswith(name) for suffix in suffixes):
            fixed, per_sample = fixed + fixed_more, per_sample + more
    per_sample *= 2 if "mirror" in suffixes else 1
    source = f"stored figure of {plain}, plus stored figures of +{'+'.join(suffixes)}" if suffixes else "stored figure"
    return NetworkCosts(UpdateMemory(fixed, per_sample, source), plain_us * per_sample / plain_per_sample, source)


def on_gpu(update: UpdateMemory) -> UpdateMemory:
    """Estimate GPU memory as twice the CPU figure, to allow for CUDA's workspaces."""
    return UpdateMemory(2 * update.fixed_bytes, 2 * update.bytes_per_sample, f"{update.source} of a CPU, doubled")


@dataclass(frozen=True)
class ModelThroughput:
    """Modelled speed of PPO; times in seconds.

    step_s, decision_s: of a step of all environments of a process, and in addition per environment.
    gradient_s, sample_s: of a gradient step, and in addition per sample of a process.
    """

    step_s: float
    decision_s: float
    gradient_s: float
    sample_s: float
    epochs: int
    processes: int

    def __call__(self, sizes: Sizes) -> float:
        """Return decisions per second, rollouts and updates together."""
        decisions = sizes.num_envs * sizes.rollout_length
        rollout_s = sizes.rollout_length * (self.step_s + sizes.num_envs / self.processes * self.decision_s)
        gradient_step_s = self.gradient_s + sizes.minibatch_size / self.processes * self.sample_s
        return decisions / (rollout_s + self.epochs * decisions / sizes.minibatch_size * gradient_step_s)


def model_throughput(
    sample_us: float, needs: MemoryNeeds, machine: Machine, *, precision: str, epochs: int
) -> ModelThroughput:
    """Return the modelled speed of a network on a machine.

    sample_us: ``NetworkCosts.sample_us``.  needs: observations, GPUs and processes of the run.
    """
    cores, processes = max(machine.cores // needs.processes, 1), needs.processes
    simulator_us = DATA["simulator"]["decision"] + sum(DATA["simulator"].get(key, 0) for key in needs.observations)
    slower = 1 if precision == "bf16" else _SPEED["float32_factor"]
    if not needs.gpus:
        sample_s = 1e-6 * sample_us * slower / cores
        decision_s = 1e-6 * simulator_us / cores + sample_s / 3  # inference has a third of the operations of an update
        return ModelThroughput(_SPEED["cpu_step_s"], decision_s, _SPEED["cpu_gradient_s"], sample_s, epochs, processes)
    bandwidth = min(gpu.bandwidth for gpu in machine.gpus[: needs.gpus])
    sample_s = 1e-6 * sample_us * slower / (_SPEED["gpu_cores"] * bandwidth / _SPEED["gpu_bandwidth"])
    transfer_s = observation_bytes(needs.observations, needs.stacking) / _SPEED["transfer_bytes_per_s"]
    decision_s = 1e-6 * simulator_us / cores + transfer_s + sample_s / 3
    return ModelThroughput(_SPEED["gpu_step_s"], decision_s, _SPEED["gpu_gradient_s"], sample_s, epochs, processes)
