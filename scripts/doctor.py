"""Check the data, settings, network and first updates of an experiment, or the files of a run, and print remedies.

python scripts/doctor.py                                     # default settings of an experiment, shipped data
python scripts/doctor.py --run-config experiments/x/config.json
python scripts/doctor.py --checkpoint experiments/x/mlp_baseline/agent.safetensors
python scripts/doctor.py --run experiments/x

The experiment is trained for a few small updates in a temporary folder.  docs/bad_run.md lists the checks.
"""

import json
import sys
from pathlib import Path

from nppsim import errors
from nppsim.settings import Parser


def main(argv: list[str]) -> int:
    """Return the exit status: 0 if no check failed, 1 if one did, 2 for bad input, 130 after Ctrl-C."""

    def job() -> int:
        errors.needed("torch", "train")
        from rl import plugins
        from rl.checks.doctor import GROUPS, findings_table, to_dict
        from rl.config import ExperimentConfig
        from rl.tools.doctor import examine_checkpoint, examine_config, examine_run

        parser = Parser(prog="doctor.py", description=__doc__.partition("\n")[0])
        what = parser.add_mutually_exclusive_group()
        config = "config.json of an experiment to check in a short trial training"
        what.add_argument("--run-config", type=Path, metavar="FILE", help=config)
        what.add_argument("--checkpoint", type=Path, metavar="FILE", help="checkpoint of an agent to check")
        folder = "folder of an experiment: check its files, then run a short trial training"
        what.add_argument("--run", type=Path, metavar="DIR", help=folder)
        parser.add_argument("--json", action="store_true", help="print the findings as JSON")
        groups = ", ".join(f"{name} ({what_is_checked})" for name, what_is_checked in GROUPS.items())
        parser.add_argument(
            "--only",
            nargs="+",
            action="extend",
            metavar="NAME",
            help=f"run only these checks or groups of checks; groups: {groups}",
        )
        parser.add_setting(ExperimentConfig, "plugins")
        parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
        arguments = parser.parse_args(argv)
        plugins.load(getattr(arguments, "plugin", ()))
        only = tuple(arguments.only) if arguments.only else None

        def log(line: str) -> None:
            print(line, file=sys.stderr)

        if arguments.checkpoint:
            doctor = examine_checkpoint(arguments.checkpoint, log, only)
        elif arguments.run:
            doctor = examine_run(arguments.run, log, only)
        else:
            doctor = examine_config(arguments.run_config, log, only)
        print(json.dumps(to_dict(doctor.findings), indent=1) if arguments.json else findings_table(doctor.findings))
        return int(doctor.failed)

    return errors.run(job, debug="--debug" in argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
