"""Run the project's commands under machine faults (kill, full disk, ...) and print how each ended (docs/lab/failures.md).

python -m tests.chaos [--targets NAME ...] [--faults "NAME" ...] [--out RESULTS.json]
python -m tests.chaos --kill-and-resume 20     # kill one training 20 times, resume it each time, compare the result

About 170 tiny runs, most followed by a second call; one to two hours on two cores.  The full disk is a small tmpfs, which
only root may mount: for other users those runs are skipped, and limits on the file size replace them.
"""

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from nppsim import errors
from nppsim.io.files import check_output_file, write_json
from nppsim.settings import Parser, Setting


def main(argv: Sequence[str] | None = None) -> int:
    """Return the exit status: 0, 1 if a run crashed, lost data or printed an unclear message, 2 for bad input."""
    given = sys.argv[1:] if argv is None else argv

    def job() -> int:
        errors.needed("torch", "train")
        return run(given)

    return errors.run(job, debug="--debug" in given)


def run(argv: Sequence[str]) -> int:
    """Run the attacks; print and write their outcomes."""
    from tests.chaos import machine_faults as faults

    parser = Parser(prog="python -m tests.chaos", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--targets", nargs="+", choices=list(faults.TARGETS), help="commands to attack; default: all")
    names = [faults.name_of(fault) for fault in faults.PLAN]
    parser.add_argument("--faults", nargs="+", choices=names, help="faults to cause; default: all")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE.json",
        help="file for the outcome of each run; outcomes of earlier calls remain unless target, fault and seed are the same; "
        "with --kill-and-resume the file is overwritten",
    )
    parser.add_flag(
        Setting("seed of the moments and sizes of faults", flag="seed", kind=int, default=0, low=0, aliases=("seeds",))
    )
    parser.add_argument(
        "--kill-and-resume", type=int, metavar="N", help="instead: kill a training N times and resume it each time"
    )
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    arguments = parser.parse_args(argv)
    earlier, results = [], []
    if arguments.out is not None:
        check_output_file(arguments.out, "--out", ".json")
        earlier = faults.known_results(arguments.out) if arguments.kill_and_resume is None else []
    if arguments.kill_and_resume is not None:
        return kill_and_resume(arguments.kill_and_resume, getattr(arguments, "seed", 0), arguments.out)
    with tempfile.TemporaryDirectory(prefix="attack_", ignore_cleanup_errors=True) as work:
        for result in faults.campaign(
            Path(work),
            lambda line: print(line, flush=True),
            targets=arguments.targets,
            faults=arguments.faults,
            seed=getattr(arguments, "seed", 0),
        ):
            mine = (result.target, result.fault, result.seed)
            earlier = [one for one in earlier if (one.target, one.fault, one.seed) != mine]
            results.append(result)
            if arguments.out is not None:
                write_json(arguments.out, faults.facts(earlier + results))
    print(faults.counts(earlier + results))
    return int(any(result.outcome in faults.BAD for result in results))


def kill_and_resume(count: int, seed: int, out: Path | None) -> int:
    """Kill a training ``count`` times; return 1 if its result differs from that of an undisturbed one."""
    from tests.chaos import kill_and_resume as campaign

    with tempfile.TemporaryDirectory(prefix="attack_", ignore_cleanup_errors=True) as work:
        found = campaign.kill_and_resume(Path(work), lambda line: print(line, flush=True), count, seed)
    print(found)
    if out is not None:
        write_json(out, asdict(found))
    return int(bool(found.different))


if __name__ == "__main__":
    sys.exit(main())
