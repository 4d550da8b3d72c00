"""Compare trainings: settings, data, versions, first divergence, learning and speed.

python scripts/compare_runs.py OLD NEW                                # folders of experiments or of single trainings
python scripts/compare_runs.py OLD BROKEN FIXED                       # compare each later run with the first
python scripts/compare_runs.py RUN --reference BAND.json              # with reference bands of earlier seeds
python scripts/compare_runs.py SEED1 SEED2 ... --write-reference BAND.json

The runs may be from different versions of the project.
Exit status: 0 no difference beyond the tolerance, or with --exact equal digests; 1 a difference, or a value outside its band;
2 undecided, or bad input; 130 after Ctrl-C.  With three or more runs, the comparison of the last with the first counts.  See
docs/evaluate.md.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from nppsim import errors
from nppsim.errors import ConfigError
from nppsim.io.files import check_output_file, write_json
from nppsim.settings import Parser, Setting

if TYPE_CHECKING:
    from rl.training.runs import StoredRun

DIFFERENT = 1  # exit status if a difference or a value outside its band was found


def main(argv: list[str]) -> int:
    """Run the command; return the exit status (see the module's docstring)."""

    def job() -> int:
        arguments = parse(argv)
        errors.import_optional("torch", "train")
        from rl.training.runs import find_runs

        sides = [find_runs(folder) for folder in arguments.runs]
        if arguments.write_reference:
            return write_reference(sides, arguments)
        return compare_with_reference(sides, arguments) if arguments.reference else compare(sides, arguments)

    return errors.run(job)


def compare(sides: "list[list[StoredRun]]", arguments: argparse.Namespace) -> int:
    """Print all differences between the sides, and compare each later side with the first.

    sides: trainings in the folder of each argument RUN.
    Returns the exit status of the last comparison.
    """
    from rl.tools.compare import Tolerance, compare_runs
    from rl.training.runs import COLUMNS, difference_table, differences

    tolerance = Tolerance(arguments.tolerance / 100, arguments.speed_tolerance / 100, arguments.exact)
    columns = COLUMNS.get(len(sides), tuple(map(str, range(1, len(sides) + 1))))
    paths = dict(zip(columns, arguments.runs, strict=True))
    different = differences([side[0].metadata for side in sides])
    comparisons = {
        name: compare_runs(sides[0], side, tolerance) for name, side in zip(columns[1:], sides[1:], strict=True)
    }
    if arguments.json:
        rows = [
            {
                "what": difference.part,
                "name": difference.name,
                "values": [entry._asdict() for entry in difference.values],
            }
            for difference in different
        ]
        labels = [
            {"a": columns[0], "b": name, "labels": [pair.to_dict() for pair in pairs]}
            for name, pairs in comparisons.items()
        ]
        _print_json({"runs": paths, "differences": rows, "comparisons": labels})
    else:
        print("\n".join(f"{name}: {path}" for name, path in paths.items()))
        table = (
            difference_table(different, columns) if different else "settings, data, versions and machine are the same"
        )
        print(f"\n{table}")
        for name, pairs in comparisons.items():
            print("\n\n".join([f"\n# A: {columns[0]}, B: {name}", *(pair.text() for pair in pairs)]))
    last = comparisons[columns[-1]]
    if any(pair.different for pair in last):
        return DIFFERENT
    return 0 if all(pair.decided for pair in last) else errors.REFUSED


def compare_with_reference(sides: "list[list[StoredRun]]", arguments: argparse.Namespace) -> int:
    """Print the values of each training and the bands of --reference; return the exit status."""
    from rl.evaluation.results import ResultsError
    from rl.tools.reference import check_run, load_reference

    reference = load_reference(arguments.reference)
    label = reference["label"]
    reports = [check_run(run, reference) for side in sides for run in side if run.label == label]
    if not reports:
        raise ResultsError(f"{arguments.reference}: the reference is for {label}; give a run of that label")
    if arguments.json:
        _print_json({"reference": arguments.reference, "runs": [report.to_dict() for report in reports]})
    else:
        print("\n\n".join(f"{report.name}\n{report.text()}" for report in reports))
    if any(report.alarms for report in reports):
        return DIFFERENT
    return errors.REFUSED if any(report.missing for report in reports) else 0


def write_reference(sides: "list[list[StoredRun]]", arguments: argparse.Namespace) -> int:
    """Write a file of reference bands computed from all trainings; return the exit status."""
    from rl.tools.reference import make_reference

    check_output_file(arguments.write_reference, "--write-reference", ".json")
    runs = [run for side in sides for run in side]
    folders = [run.folder.resolve() for run in runs]
    if twice := [folder for folder in folders if folders.count(folder) > 1]:
        raise ConfigError("is given twice and would be counted twice; give it once", "RUN", twice[0])
    write_json(arguments.write_reference, make_reference(runs))
    print(f"written: {arguments.write_reference}")
    return 0


def _print_json(values: dict) -> None:
    print(json.dumps(values, indent=2, default=str))


def parse(argv: list[str]) -> argparse.Namespace:
    """Parse the command line.  Raises ConfigError for contradictory flags."""
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("runs", nargs="+", type=Path, metavar="RUN", help="folder of an experiment, or of one training in it")
    add("--reference", type=Path, metavar="BAND.json", help="compare each RUN with these reference bands")
    write = "write reference bands computed from all RUNs, which must have one label and different seeds"
    add("--write-reference", type=Path, metavar="BAND.json", help=write)
    points = "accepted difference of success on the dev levels in percentage points, even if it is significant"
    parser.add_flag(Setting(points, flag="tolerance", kind=float, default=0.0, low=0, high=100))
    slower = "accepted difference of the time per decision in percent"
    parser.add_flag(Setting(slower, flag="speed-tolerance", kind=float, default=10.0, low=0, high=1000))
    same = "require equal digests of all updates; success and speed do not count"
    parser.add_flag(Setting(same, flag="exact", kind=bool, default=False))
    parser.add_flag(Setting("print JSON", flag="json", kind=bool, default=False))
    arguments = parser.parse_args(argv)
    if arguments.reference and arguments.write_reference:
        raise ConfigError("--reference and --write-reference contradict each other; give one of them")
    if arguments.write_reference and arguments.json:
        raise ConfigError("--json has no effect with --write-reference; leave it out")
    one_is_enough = arguments.reference or arguments.write_reference
    if len(arguments.runs) < 2 and not one_is_enough:
        raise ConfigError("give two runs or more, or --reference")
    if one_is_enough and (arguments.exact or arguments.tolerance != 0.0 or arguments.speed_tolerance != 10.0):
        raise ConfigError("--exact and tolerances only apply to comparing runs with each other; leave them out")
    return arguments


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
