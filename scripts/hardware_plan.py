"""Print sizes, memory and duration of a training run on this or another machine.

python scripts/hardware_plan.py                                   # a table with one row per architecture
python scripts/hardware_plan.py --architecture gcn                # complete plan with the source of each number
python scripts/hardware_plan.py --gpu H100 --total-timesteps 10e6 # another machine

Exit status: 0 success; 2 bad input, or no plan for any architecture.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace

import hardware
from hardware import Gpu, Machine, Plan, PlanError, PlanRequest
from hardware.machine import GB, KNOWN_GPUS, known_gpu
from hardware.request import PROFILE_NAMES, find_profile
from nppsim import errors
from nppsim.errors import ConfigError
from nppsim.settings import Parser, Setting


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status (see the module's docstring)."""

    def job() -> int:
        arguments = _parser().parse_args(argv)
        if arguments.plugin:  # importing plug-ins needs torch, other plans do not
            from rl import plugins

            plugins.load(arguments.plugin)
        from rl.policy.architectures import ALIASES, ARCHITECTURES

        names = arguments.architectures or dict.fromkeys((*ARCHITECTURES, *ALIASES.values()))
        plans = {name: _plan(name, arguments) for name in names}
        stored = [_to_dict(name, plan) for name, plan in plans.items()]
        if arguments.json:
            print(json.dumps(stored[0] if len(stored) == 1 else {"architectures": stored}, indent=2))
        elif len(plans) == 1:
            (plan,) = plans.values()
            if isinstance(plan, PlanError):
                raise plan
            print(plan)
        else:
            table = hardware.plan_table(plans, arguments.total_timesteps)
            print(f"machine: {_machine(arguments).name}\n\n{table}")
        return errors.REFUSED if all(isinstance(plan, PlanError) for plan in plans.values()) else 0

    return errors.run(job)


def _to_dict(name: str, plan: Plan | PlanError) -> dict:
    return {"architecture": name} | ({"error": str(plan)} if isinstance(plan, PlanError) else plan.to_dict())


def _parser() -> Parser:
    command = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = "architectures, as in scripts/train_and_compare.py (default: all)"
    command.add_argument("--architectures", "--architecture", nargs="+", metavar="NAME", help=names)
    plugin = "Python files or installed modules to import first, with your own networks (docs/own_network.md)"
    command.add_argument("--plugin", nargs="+", action="extend", default=[], metavar="FILE", help=plugin)
    flag = command.add_flag
    flag(Setting("length of the run in decisions", flag="total-timesteps", kind=int, low=1))
    profiles = f"hardware profile: {', '.join(PROFILE_NAMES)} (default: auto)"
    command.add_argument("--profile", "--hardware-profile", default="auto", metavar="NAME", help=profiles)
    flag(Setting("number of parallel environments", flag="num-envs", kind=int, low=1))
    flag(Setting("decisions per environment and update", flag="rollout-length", kind=int, low=1))
    flag(Setting("decisions per gradient step", flag="minibatch-size", kind=int, low=1))
    measure = (
        "measure memory and speed on this machine: seconds per network on a CPU, about a minute on a GPU; later trainings "
        "use the measurement; default: estimates"
    )
    command.add_argument("--measure", action="store_true", help=measure)
    command.add_argument("--json", action="store_true", help="print JSON")
    other = command.add_argument_group("another machine (defaults: values of this machine or of the profile's machine)")
    flag(Setting("processor cores", flag="cores", kind=int, low=1), other)
    flag(Setting("host memory in GB (1e9 bytes)", flag="memory-gb", kind=float, above=0), other)
    flag(Setting("number of GPUs", flag="gpus", kind=int, low=0), other)
    flag(Setting("memory of each GPU in GB (1e9 bytes)", flag="gpu-memory-gb", kind=float, above=0), other)
    other.add_argument("--gpu", metavar="NAME", help=f"model of the GPUs: {', '.join(KNOWN_GPUS)}")
    return command


def _plan(name: str, arguments: argparse.Namespace) -> Plan | PlanError:
    """Return the plan for one architecture, or the error that prevents it."""
    from rl.policy.architectures import get_architecture

    network = get_architecture(name)
    request, machine = _plan_request(arguments), _machine(arguments)
    if arguments.measure and not machine.present:
        raise ConfigError("measures this machine; remove the flags that describe another one", "--measure")
    try:
        if arguments.measure:
            from rl.experiment.plan import measured_plan

            return measured_plan(name, request, machine)
        return hardware.plan(
            network.observations,
            request,
            architecture=name,
            stacking=network.stacking,
            carried_bytes=network.carried_bytes,
            machine=machine,
        )
    except PlanError as error:
        return error


def _plan_request(arguments: argparse.Namespace) -> PlanRequest:
    profile = find_profile(arguments.profile)
    return PlanRequest(
        total_timesteps=arguments.total_timesteps,
        profile=arguments.profile,
        processes=len(profile.gpus) or None if profile is not None else None,
        num_envs=arguments.num_envs,
        rollout_length=arguments.rollout_length,
        minibatch_size=arguments.minibatch_size,
    )


def _machine(arguments: argparse.Namespace) -> Machine:
    """Return this machine, or the profile's machine if that one has more GPUs, as changed by the flags."""
    here = hardware.detect()
    profile = find_profile(arguments.profile)
    machine = profile.machine() if profile is not None and len(profile.gpus) > len(here.gpus) else here
    given = (arguments.cores, arguments.memory_gb, arguments.gpus, arguments.gpu_memory_gb, arguments.gpu)
    if all(value is None for value in given):
        return machine
    cores = arguments.cores or machine.cores
    memory = machine.memory_bytes if arguments.memory_gb is None else int(arguments.memory_gb * GB)
    gpus = _described_gpus(arguments, machine)
    return replace(
        machine, cpu="described", cores=cores, memory_bytes=memory, available_bytes=memory, gpus=gpus, present=False
    )


def _described_gpus(arguments: argparse.Namespace, machine: Machine) -> tuple[Gpu, ...]:
    count = arguments.gpus
    if count is None:
        count = len(machine.gpus) or (1 if arguments.gpu_memory_gb or arguments.gpu else 0)
    if count == 0 and (arguments.gpu or arguments.gpu_memory_gb):
        raise ConfigError("contradicts --gpu and --gpu-memory-gb; leave one of them out", "--gpus", count)
    if count == 0:
        return ()
    known = known_gpu(arguments.gpu) if arguments.gpu else machine.gpus[0] if machine.gpus else None
    if arguments.gpu_memory_gb is not None:
        name, memory = (
            f"{arguments.gpu or 'GPU'} with {arguments.gpu_memory_gb:g} GB",
            int(arguments.gpu_memory_gb * GB),
        )
        return (replace(known, name=name, memory_bytes=memory) if known else Gpu(name, memory, bf16=True),) * count
    if known is None:
        raise ConfigError("the model of the GPUs is unknown; add --gpu NAME or --gpu-memory-gb", "--gpus", count)
    return (known,) * count


if __name__ == "__main__":
    sys.exit(main())
