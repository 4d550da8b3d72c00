"""``python -m hardware plan``: the sizes that a training run would have here, or on another machine."""

import argparse
import json
import sys
from dataclasses import replace

from hardware.detect import GB, Gpu, Machine, detect
from hardware.plan import Plan, plan
from hardware.profiles import PROFILE_NAMES, find_profile
from hardware.wishes import Wishes
from nppsim import errors
from nppsim.errors import ConfigError
from nppsim.settings import Parser, Setting


def main(argv: list[str] | None = None) -> int:
    """Print the plan; returns the exit status (2 if there is none)."""

    def job() -> None:
        arguments = _parser().parse_args(argv)
        made = _plan(arguments)
        print(json.dumps(made.to_dict(), indent=2) if arguments.json else made)

    return errors.run(job)


def _parser() -> Parser:
    parser = Parser(prog="python -m hardware", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("plan", help="print a plan with the source of each number")
    command.add_argument(
        "--architecture", "--architectures", required=True, metavar="NAME", help="as in scripts/train_and_compare.py"
    )
    flag = command.add_flag
    flag(Setting("decisions of the whole run", flag="total-timesteps", kind=int, low=1))
    command.add_argument(
        "--profile", "--hardware-profile", default="auto", metavar="NAME", help=", ".join(PROFILE_NAMES)
    )
    flag(Setting("environments stepped together", flag="num-envs", kind=int, low=1))
    flag(Setting("decisions per environment and update", flag="rollout-length", kind=int, low=1))
    flag(Setting("decisions per gradient step", flag="minibatch-size", kind=int, low=1))
    command.add_argument("--json", action="store_true")
    other = command.add_argument_group("another machine (what is not given is as here, or as in the profile)")
    flag(Setting("of its processor", flag="cores", kind=int, low=1), other)
    flag(Setting("host memory; 1 GB = 1e9 bytes", flag="memory-gb", kind=float, above=0), other)
    flag(Setting("how many", flag="gpus", kind=int, low=0), other)
    flag(Setting("memory of each GPU", flag="gpu-memory-gb", kind=float, above=0), other)
    return parser


def _plan(arguments: argparse.Namespace) -> Plan:
    wishes = Wishes(
        total_timesteps=arguments.total_timesteps,
        profile=arguments.profile,
        num_envs=arguments.num_envs,
        rollout_length=arguments.rollout_length,
        minibatch_size=arguments.minibatch_size,
    )
    return plan(_observations(arguments.architecture), wishes, machine=_machine(arguments))


def _observations(architecture: str) -> tuple[str, ...]:
    """What a network reads.  Only this command line, like a script, knows ``rl``; the package does not."""
    from rl.policy.architectures import get_architecture

    return get_architecture(architecture).observations


def _machine(arguments: argparse.Namespace) -> Machine:
    """The machine to plan for: this one, changed by the flags; for a profile with GPUs that are not here, its own."""
    here = detect()
    profile = find_profile(arguments.profile)
    machine = profile.machine() if profile is not None and len(profile.gpus) > len(here.gpus) else here
    given = (arguments.cores, arguments.memory_gb, arguments.gpus, arguments.gpu_memory_gb)
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
        count = len(machine.gpus) or (1 if arguments.gpu_memory_gb else 0)
    if count == 0:
        return ()
    if arguments.gpu_memory_gb is not None:
        name = f"GPU with {arguments.gpu_memory_gb:g} GB"
        bf16 = machine.gpus[0].bf16 if machine.gpus else True
        return (Gpu(name, int(arguments.gpu_memory_gb * GB), bf16),) * count
    if not machine.gpus:
        raise ConfigError("how much memory has each? add --gpu-memory-gb", "--gpus", count)
    return (machine.gpus[0],) * count


if __name__ == "__main__":
    sys.exit(main())
