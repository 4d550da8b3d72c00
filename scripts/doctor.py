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

DESCRIPTION = "Check the data, settings, network and first updates of an experiment, or the files of a run."


def main(argv: list[str]) -> int:
    """Return the exit status: 0 if no check failed, 1 if one did, 2 for bad input, 130 after Ctrl-C."""

    def job() -> int:
        errors.import_optional("torch", "train")
        from rl import plugins
        from rl.checks.check import results_table, to_dict
        from rl.checks.doctor import GROUPS
        from rl.config import ExperimentConfig
        from rl.tools import doctor

        parser = Parser(prog="doctor.py", description=DESCRIPTION)
        source = parser.add_mutually_exclusive_group()
        config = "config.json of an experiment to check in a trial run"
        source.add_argument("--run-config", type=Path, metavar="FILE", help=config)
        source.add_argument("--checkpoint", type=Path, metavar="FILE", help="checkpoint of an agent to check")
        folder = "folder of an experiment: check its files, then its settings in a trial run"
        source.add_argument("--run", type=Path, metavar="DIR", help=folder)
        parser.add_argument("--json", action="store_true", help="print the results as JSON")
        groups = ", ".join(f"{name} ({content})" for name, content in GROUPS.items())
        only = f"run only these checks or groups of checks; groups: {groups}"
        parser.add_argument("--only", nargs="+", action="extend", metavar="NAME", help=only)
        parser.add_setting(ExperimentConfig, "plugins")
        trusted = "import the plug-ins that the config.json names, which runs their code"
        parser.add_argument(plugins.TRUST_FLAG, action="store_true", help=trusted)
        parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
        arguments = parser.parse_args(argv)
        plugins.load(getattr(arguments, "plugin", ()))
        names = tuple(arguments.only) if arguments.only else None

        def log(line: str) -> None:
            print(line, file=sys.stderr)

        if arguments.checkpoint:
            done = doctor.check_agent(arguments.checkpoint, log, names)
        elif arguments.run:
            done = doctor.check_run(arguments.run, log, names, arguments.trust_plugins)
        elif arguments.run_config:
            done = doctor.check_config(arguments.run_config, log, names, arguments.trust_plugins)
        else:
            done = doctor.check_default(log, names)
        print(json.dumps(to_dict(done.results), indent=1) if arguments.json else results_table(done.results))
        return int(done.failed)

    return errors.run(job, debug="--debug" in argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
