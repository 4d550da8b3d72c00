"""Command ``python -m hardware plan``: print sizes, memory and duration of a training run on this or another machine.

It prints the complete plan of one architecture, or a table with one row per architecture for several or all
architectures.
"""

import argparse
import json
import sys
from dataclasses import replace
from functools import partial

from hardware.detect import GB, Gpu, Machine, detect
from hardware.figures import MACHINE, on_gpu, stored_figures
from hardware.memory import estimate_update
from hardware.plan import plan
from hardware.plan_report import PlanReport, Speed, plan_table
from hardware.plan_request import PlanRequest
from hardware.profiles import KNOWN_GPUS, PROFILE_NAMES, PlanError, find_profile, known_gpu
from nppsim import errors
from nppsim.errors import ConfigError
from nppsim.settings import Parser, Setting


def main(argv: list[str] | None = None) -> int:
    """Print the plans and return the exit status: 2 if there is no plan for any architecture, else 0."""

    def job() -> int:
        arguments = _parser().parse_args(argv)
        if arguments.plugin:  # importing plug-ins needs torch, other plans do not
            from rl import plugins

            plugins.load(arguments.plugin)
        from rl.policy.architectures import ALIASES, ARCHITECTURES

        names = arguments.architectures or dict.fromkeys((*ARCHITECTURES, *ALIASES.values()))
        reports = [_report(name, arguments) for name in names]
        if arguments.json:
            stored = [report.to_dict() for report in reports]
            print(json.dumps(stored[0] if len(stored) == 1 else {"architectures": stored}, indent=2))
        elif len(reports) == 1:
            print(reports[0])
        else:
            print(f"machine: {_machine(arguments).name}\n\n{plan_table(reports, arguments.total_timesteps)}")
        return errors.REFUSED if all(isinstance(report.plan, PlanError) for report in reports) else 0

    return errors.run(job)


def _parser() -> Parser:
    parser = Parser(prog="python -m hardware", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("plan", help="print a plan with the source of each number")
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
        "measure memory and speed on this machine: a few seconds per network after compilation; "
        "default: stored figures of another machine, which the output names"
    )
    command.add_argument("--measure", action="store_true", help=measure)
    command.add_argument("--json", action="store_true", help="print JSON")
    other = command.add_argument_group("another machine (defaults: values of this machine or of the profile's machine)")
    flag(Setting("processor cores", flag="cores", kind=int, low=1), other)
    flag(Setting("host memory in GB (1e9 bytes)", flag="memory-gb", kind=float, above=0), other)
    flag(Setting("number of GPUs", flag="gpus", kind=int, low=0), other)
    flag(Setting("memory of each GPU in GB (1e9 bytes)", flag="gpu-memory-gb", kind=float, above=0), other)
    other.add_argument("--gpu", metavar="NAME", help=f"model of the GPUs: {', '.join(KNOWN_GPUS)}")
    return parser


def _report(name: str, arguments: argparse.Namespace) -> PlanReport:
    """Plan one architecture.  Only this command line imports ``rl``; the other modules of ``hardware`` do not."""
    from rl.policy.architectures import get_architecture

    architecture = get_architecture(name)
    request, machine = _plan_request(arguments), _machine(arguments)
    if arguments.measure:
        if not machine.present:
            raise ConfigError("measures this machine; remove the flags that describe another one", "--measure")
        from rl.experiment.plan import measured

        return measured(architecture.name, request, machine)
    observations, stacking = architecture.observations, architecture.stacking
    figures = stored_figures(architecture.name, observations, stacking)
    update = figures.update if figures else estimate_update(observations, stacking)
    planned = partial(
        plan, observations, request, stacking=stacking, carried_bytes=architecture.carried_bytes, machine=machine
    )
    try:
        made = planned(update=update)
        if figures and made.gpus:
            made = planned(update=on_gpu(update))
    except PlanError as error:
        return PlanReport(architecture.name, error)
    speed = None
    if figures and figures.decisions_per_s and not made.gpus:
        speed = Speed(figures.decisions_per_s, f"stored figures, measured on {MACHINE}; --measure replaces them")
    return PlanReport(architecture.name, made, speed)


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
    here = detect()
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
        name = f"{arguments.gpu or 'GPU'} with {arguments.gpu_memory_gb:g} GB"
        return (Gpu(name, int(arguments.gpu_memory_gb * GB), known.bf16 if known else True),) * count
    if known is None:
        raise ConfigError("the model of the GPUs is unknown; add --gpu NAME or --gpu-memory-gb", "--gpus", count)
    return (known,) * count


if __name__ == "__main__":
    sys.exit(main())
