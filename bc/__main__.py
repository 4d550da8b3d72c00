"""Command line for demonstrations: ``python -m bc check | report | minari-export | minari-import``.

Minari datasets need the extra ``minari``.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from bc.analysis import analyse
from bc.dataset import DatasetConfig
from bc.demonstrations import DemonstrationError, find_replays, load_demonstrations
from bc.minari import MinariMetadata, export_folder, import_minari, observation_keys
from nppsim import errors
from nppsim.errors import import_optional
from nppsim.io.files import check_output_folder
from nppsim.io.progress import progress_bar
from nppsim.levels.level_set import LevelSet
from nppsim.observe import layout
from nppsim.parallel.workers import worker_pool
from nppsim.settings import Parser, settings_of


def main(argv: list[str] | None = None) -> int:
    """Run one command; return 0 for success, 1 if ``report`` finds demonstrations of held-out levels, 2 for an error."""

    def job() -> int:
        arguments = _parser().parse_args(argv)
        return arguments.run(arguments)

    return errors.run(job)


def _parser() -> Parser:
    parser = Parser(prog="python -m bc", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser("check", help="list usable and excluded replays, with reasons")
    check.set_defaults(run=_check)
    check.add_argument("replays", nargs="+", metavar="REPLAYS", help="folders of replays, *.replay files or *.h5 files")
    settings = settings_of(DatasetConfig)
    check.add_flag(settings["frame_skip"])
    check.add_flag(replace(settings["mirror"], help="also check the mirror image of each replay", aliases=("mirror",)))
    report = commands.add_parser("report", help="print statistics of demonstrations and problems in them")
    report.set_defaults(run=_report)
    report.add_argument("folder", nargs="+", metavar="REPLAYS", help="folders of replays, *.replay files or *.h5 files")
    report.add_argument("--levels", nargs="+", default=[], metavar="DIR", help="training levels to compare with")
    report.add_argument(
        "--held-out",
        nargs="+",
        default=[],
        metavar="DIR",
        help="level sets for testing; the exit status is 1 if any demonstration is of one of their levels",
    )
    report.add_flag(settings["frame_skip"])
    export = commands.add_parser("minari-export", help="write a folder of replays as Minari datasets")
    export.set_defaults(run=_export)
    export.add_argument("folder", metavar="REPLAYS", help="folder of replays, or a *.h5 file")
    export.add_argument("--source", required=True, help="origin of the replays in one word, e.g. planner or human")
    export.add_flag(settings["frame_skip"])
    export.add_argument(
        "--observations",
        nargs="+",
        metavar="NAME",
        default=layout.VISION_FREE,
        help=f"observations in the dataset, as keys or short names (default: {' '.join(layout.VISION_FREE)})",
    )
    export.add_argument("--author", type=str, required=True, help="name of the author, for the metadata")
    export.add_argument(
        "--author-email", type=str, required=True, help="e-mail address of the author, for the metadata"
    )
    export.add_argument(
        "--code-permalink", type=str, required=True, help="URL of the code that made the replays, with its version"
    )
    load = commands.add_parser("minari-import", help="write the replays of an exported Minari dataset into a folder")
    load.set_defaults(run=_import)
    load.add_argument("dataset", help="name of the dataset, npp/<category>/<source>-v0")
    load.add_argument("out", metavar="OUT", help="output folder; the replays are written to OUT/<category>")
    return parser


def _check(arguments: argparse.Namespace) -> int:
    files = find_replays(arguments.replays)
    demonstrations = load_demonstrations(
        files,
        arguments.frame_skip,
        folder=arguments.replays,
        mirror=arguments.mirror_demonstrations,
        progress=progress_bar,
    )
    print(demonstrations.table(details=len(files)))
    return 0


def _report(arguments: argparse.Namespace) -> int:
    levels, held_out = ([LevelSet.at(path) for path in paths] for paths in (arguments.levels, arguments.held_out))
    analysis = analyse(
        find_replays(arguments.folder),
        arguments.frame_skip,
        folder=arguments.folder,
        levels=levels,
        held_out=held_out,
        progress=progress_bar,
    )
    print(analysis.text())
    return int(any(remark.problem for remark in analysis.remarks))


def _export(arguments: argparse.Namespace) -> int:
    import_optional("minari", "minari")  # before the slow playback
    about = MinariMetadata(arguments.source, arguments.author, arguments.author_email, arguments.code_permalink)
    keys = observation_keys(arguments.observations)
    with worker_pool(1, _died) as pool:  # separate process: after a full disk, HDF5 may crash at exit
        print("\n".join(pool.submit(export_folder, arguments.folder, arguments.frame_skip, about, keys).result()))
    return 0


def _died(_: str) -> DemonstrationError:
    return DemonstrationError(
        "the process that wrote the Minari files crashed, probably because the disk is full; nothing was exported: "
        "free space and repeat"
    )


def _import(arguments: argparse.Namespace) -> int:
    check_output_folder(arguments.out, "OUT")
    files = import_minari(arguments.dataset)
    targets = [Path(arguments.out) / file.category / f"{number:05d}.replay" for number, file in enumerate(files)]
    if existing := [target for target in targets if target.exists()]:
        raise DemonstrationError(f"{existing[0]}: exists already; choose another folder")
    for file, target in zip(files, targets, strict=True):
        file.replay.save(target)
    print(f"{len(files)} replays in {arguments.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
