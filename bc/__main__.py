"""Command line of the demonstrations: ``python -m bc check | minari-export | minari-import`` (Minari is an extra)."""

import argparse
import sys
from pathlib import Path

from tqdm import tqdm

from bc.dataset import DatasetError
from bc.demonstrations import DemonstrationError, find_replays, load_demonstrations
from bc.minari import export_minari, import_minari
from nppsim.observe import layout


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit status: 0 fine, 2 the command failed."""
    arguments = _parser().parse_args(argv)
    try:
        arguments.run(arguments)
    except (DemonstrationError, DatasetError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        if error.name != "minari":
            raise
        print("error: Minari is not installed; install the extra: pip install -e '.[minari]'", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bc", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    check = commands.add_parser("check", help="tell which replays become demonstrations, and why others do not")
    check.set_defaults(run=_check)
    check.add_argument("replays", metavar="REPLAYS", help="folder of *.replay and *.h5 files, or one of them")
    check.add_argument("--frame-skip", type=int, default=4, help="frames per decision (default: %(default)s)")
    check.add_argument("--mirror", action="store_true", help="their mirror images, too")
    export = commands.add_parser("minari-export", help="write a folder of replays as Minari datasets")
    export.set_defaults(run=_export)
    export.add_argument("folder", metavar="REPLAYS")
    export.add_argument("--source", required=True, help="who played: planner, human, ...")
    export.add_argument("--frame-skip", type=int, default=4, help="frames per decision (default: %(default)s)")
    export.add_argument(
        "--observations",
        nargs="+",
        metavar="NAME",
        default=layout.VISION_FREE,
        help=f"keys or short names (default: {' '.join(layout.VISION_FREE)})",
    )
    export.add_argument("--author", required=True)
    export.add_argument("--author-email", required=True)
    export.add_argument("--code-permalink", required=True, help="address of the code that made them, with its version")
    load = commands.add_parser("minari-import", help="write the replays of a Minari dataset of nppsim into a folder")
    load.set_defaults(run=_import)
    load.add_argument("dataset", help="npp/<category>/<source>-v0")
    load.add_argument("out", metavar="OUT", help="folder; replays go to OUT/<category>")
    return parser


def _check(arguments) -> None:
    files = find_replays(arguments.replays)
    found = load_demonstrations(
        files, arguments.frame_skip, folder=arguments.replays, mirror=arguments.mirror, progress=_bar
    )
    print(found.table(details=len(files)))


def _bar(items):
    """A progress bar, on a terminal."""
    return tqdm(items, unit="replay", disable=not sys.stderr.isatty())


def _export(arguments) -> None:
    found = load_demonstrations(
        find_replays(arguments.folder), arguments.frame_skip, folder=arguments.folder, progress=_bar
    )
    print(found.table())
    names = export_minari(
        found,
        arguments.source,
        observations=arguments.observations,
        progress=_bar,
        author=arguments.author,
        author_email=arguments.author_email,
        code_permalink=arguments.code_permalink,
    )
    print("\n".join(names))


def _import(arguments) -> None:
    files = import_minari(arguments.dataset)
    targets = [Path(arguments.out) / file.category / f"{number:05d}.replay" for number, file in enumerate(files)]
    if taken := [target for target in targets if target.exists()]:
        raise DemonstrationError(f"{taken[0]}: is there already; choose another folder")
    for file, target in zip(files, targets, strict=True):
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.data)
    print(f"{len(files)} replays in {arguments.out}")


if __name__ == "__main__":
    sys.exit(main())
