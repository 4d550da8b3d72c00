"""Attack the commands of this project with faults of the machine, and print how each ended (docs/lab/reliability.md).

python -m tests.chaos [--targets NAME ...] [--faults "NAME" ...] [--out RESULTS.json]
python -m tests.chaos --kill-and-resume 20     # a training is killed so often, gone on with, and compared

Some 170 runs at tiny size, with as many calls again; one to two hours on two cores.  A full disk is a small one of its own,
which only root may mount: for others those runs are skipped, and limits on the size of files stand for it.
"""

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from nppsim import errors
from nppsim.files import check_output_file, write_json
from nppsim.settings import Parser, Setting


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0, 1 if a run crashed, lost data or was not clear about what happened, 2 for bad input."""
    given = sys.argv[1:] if argv is None else argv

    def job() -> int:
        errors.needed("torch", "train")
        return run(given)

    return errors.run(job, debug="--debug" in given)


def run(argv: Sequence[str]) -> int:
    """Attack, print and write."""
    from tests.chaos import machine_faults as faults

    parser = Parser(prog="python -m tests.chaos", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--targets", nargs="+", choices=list(faults.TARGETS), help="commands to attack; default: all")
    names = [faults.name_of(fault) for fault in faults.PLAN]
    parser.add_argument("--faults", nargs="+", choices=names, help="what hits them; default: all")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE.json",
        help="what came of each run; those of earlier calls stay, or are replaced where the seed is the same; with "
        "--kill-and-resume the file is another one, and replaced",
    )
    parser.add_flag(Setting("of moments and sizes", flag="seed", kind=int, default=0, low=0, aliases=("seeds",)))
    parser.add_argument(
        "--kill-and-resume", type=int, metavar="N", help="instead: kill a training N times and go on each time"
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
    """Kill a training so often; 1 if it then ended differently."""
    from tests.chaos import kill_and_resume as campaign

    with tempfile.TemporaryDirectory(prefix="attack_", ignore_cleanup_errors=True) as work:
        found = campaign.kill_and_resume(Path(work), lambda line: print(line, flush=True), count, seed)
    print(found)
    if out is not None:
        write_json(out, asdict(found))
    return int(bool(found.different))


if __name__ == "__main__":
    sys.exit(main())
