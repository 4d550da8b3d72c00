"""Command line of the simulator: ``python -m nppsim COMMAND``, see ``--help``."""

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import nppsim
from nppsim.bank import LevelBank
from nppsim.errors import UserError
from nppsim.levels.level import Level
from nppsim.levels.level_set import LevelSet
from nppsim.replays.replay import Replay


class CommandError(UserError, ValueError):
    """What was asked for cannot be done; the message says why."""


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit status: 0 fine, 1 the answer is no (verify, fuzz, replays), 2 the command failed."""
    arguments = _parser().parse_args(argv)
    try:
        return arguments.run(arguments)
    except UserError as error:
        message = str(error)
    except OSError as error:
        message = f"{error.filename}: {error.strerror}; check the path" if error.filename else str(error)
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m nppsim", description=nppsim.__doc__)
    commands = parser.add_subparsers(dest="command", required=True)

    def command(run, name, text):
        added = commands.add_parser(name, help=text, description=text)
        added.set_defaults(run=run)
        return added

    verify = command(_verify, "verify", "replay recorded traces and compare every number, bit for bit")
    verify.add_argument("files", nargs="+", metavar="FILE.h5", help="trace files")

    simulate = command(_simulate, "simulate", "play a replay back, exactly")
    simulate.add_argument("level", metavar="MAP|REPLAY", help="a level with --replay, otherwise a replay")
    simulate.add_argument("--replay", metavar="FILE", help="a replay whose inputs are played on MAP")
    simulate.add_argument("--json", action="store_true")

    replays = command(_replays, "replays", "play many replays back and tell how each ends")
    replays.add_argument("paths", nargs="+", metavar="FILE|FOLDER", help="replays, replay sets (*.h5), folders")
    replays.add_argument("--json", action="store_true")

    diff = command(_diff, "diff", "compare two runs of one level: where they part, frames gained and lost")
    diff.add_argument("a", metavar="A", help="replay")
    diff.add_argument("b", metavar="B", help="replay of the same level")
    diff.add_argument("--sections", type=int, default=10, help="of the way (default: %(default)s)")
    diff.add_argument("--out", metavar="PNG", help="draw both ways (extra: video)")
    diff.add_argument("--json", action="store_true")

    bench = command(_bench, "bench", "measure the speed of the simulator")
    bench.add_argument("--json", action="store_true")
    bench.add_argument("--rounds", type=int, default=5, help="a figure is their median (default: %(default)s)")
    bench.add_argument("--seconds", type=float, default=1.5, help="of each workload (default: %(default)s)")
    bench.add_argument("--threads", type=int, nargs="+", metavar="N", help="default: 1, and 2 if there are two cores")
    source = bench.add_mutually_exclusive_group()
    source.add_argument("--levels", metavar="DIR", help="random play on these levels (default: generated ones)")
    source.add_argument("--traces", metavar="FILE.h5", help="the recorded play of a trace file")

    bench.add_argument("--themes", nargs="+", metavar="NAME", default=(), help="of the trace file; default: all")
    bench.add_argument("--start", action="store_true", help="instead: how long the first start takes, and later ones")

    fuzz = command(_fuzz, "fuzz", "load and play random and damaged levels and replays")
    fuzz.add_argument("--count", type=int, default=100_000, help="cases (default: %(default)s)")
    fuzz.add_argument("--seed", type=int, default=0)
    fuzz.add_argument("--first", type=int, default=0, metavar="N", help="begin with case N (default: %(default)s)")

    render = command(_render, "render", "draw a level, the way of a replay, or a sheet of levels (extra: video)")
    render.add_argument("paths", nargs="*", metavar="LEVEL OUT.png", help="with --sheet: OUT.png alone")
    render.add_argument("--replay", metavar="FILE", help="draw the way of these inputs, too")
    render.add_argument("--sheet", metavar="DIR", help="draw the levels of a folder on one page")
    render.add_argument("--rulebook", metavar="DIR", help="instead: draw the figures of docs/physics.md into a folder")
    render.add_argument(
        "--count", type=int, default=40, help="levels of a sheet, from all over DIR (default: %(default)s)"
    )
    render.add_argument("--scale", type=float, default=1.0, help="of a single level (default: %(default)s)")

    generate = command(_generate, "generate", "make a level, or a folder of levels, of a category")
    generate.add_argument("category")
    generate.add_argument("out", metavar="OUT", help="level file; with --count a new folder")
    generate.add_argument("--seed", type=int, default=0, help="of the (first) level (default: %(default)s)")
    generate.add_argument("--count", type=int, metavar="N", help="levels of seeds SEED ... SEED + N - 1")
    generate.add_argument(
        "--difficulty", type=float, metavar="D", help="0 to 1: the easy or the hard end of the category"
    )

    plan = command(_plan, "plan", "search a run that finishes a level, and write it as a replay")
    plan.add_argument("level", metavar="LEVEL")
    plan.add_argument("out", metavar="OUT.replay")
    plan.add_argument("--frame-skip", type=int, default=4, help="frames per decision (default: %(default)s)")
    plan.add_argument("--seed", type=int, default=0)
    plan.add_argument("--budget", type=int, default=5_000_000, help="simulated frames (default: %(default)s)")
    plan.add_argument("--min-hold", type=int, default=1, help="decisions that an action lasts at least (default: 1)")
    plan.add_argument(
        "--noise", type=float, default=12.0, metavar="PX", help="more: more varied (default: %(default)s)"
    )
    plan.add_argument("--polish", type=int, default=0, metavar="N", help="simulate N frames more to shorten the run")
    return parser


# ---------------------------------------------------------------------------------------------------------------------
# verify


def _verify(arguments) -> int:
    judged = passed = 0
    all_results = [_verified(file) for file in arguments.files]
    print(f"{'theme':<16} {'cases':>6} {'exact':>6} {'refused':>8} {'frames':>8}")
    for results in all_results:
        for theme, result in results.items():
            judged, passed = judged + result.cases, passed + result.exact
            counts = f"{result.cases:>6} {result.exact:>6} {len(result.refused):>8} {result.frames:>8}"
            notes = [f"diverges: {result.first_divergence}"] if result.first_divergence else []
            notes += [f"refused: {refusal}" for refusal in result.refused]
            print(f"{theme:<16} {counts}  {'; '.join(notes)}".rstrip())
    print(f"{passed} of {judged} cases are bit-exact")
    return 0 if passed == judged > 0 else 1


def _verified(file: str) -> dict:
    try:
        return nppsim.verify(file)
    except KeyError as error:
        raise CommandError(f"{file}: a case lacks a dataset: {error}; this is no trace file") from error
    except ValueError as error:
        raise CommandError(str(error)) from error


# ---------------------------------------------------------------------------------------------------------------------
# simulate


def _simulate(arguments) -> int:
    replay = Replay.load(arguments.replay or arguments.level)
    level = Level.load(arguments.level) if arguments.replay else replay.level
    if level != replay.level:
        print(f"note: {arguments.replay} was recorded on another level", file=sys.stderr)
    for warning in dict.fromkeys((*level.warnings, *replay.warnings)):
        print(f"warning: {warning}", file=sys.stderr)
    run = nppsim.simulate(level, replay.inputs)
    position = run.position[-1].tolist()  # a replay has at least one frame
    facts = {
        "level": arguments.level,
        "fingerprint": level.fingerprint,
        "outcome": run.outcome,
        "frames": run.frames,
        "inputs": replay.frames,
        "position": position,
        "velocity": run.velocity[-1].tolist(),
        "gold": int(run.gold[-1]),
        "win_fraction": run.win_fraction,
    }
    if arguments.json:
        print(json.dumps(facts, indent=2))
        return 0
    print(f"outcome       {run.outcome}")
    print(f"frames        {run.frames} of {replay.frames} inputs ({run.frames / 60:.2f} s)")
    print(f"position      {position[0]!r}, {position[1]!r}")
    print(f"gold          {facts['gold']}")
    print(f"win fraction  {run.win_fraction!r}")
    return 0


# ---------------------------------------------------------------------------------------------------------------------
# replays


def _replays(arguments) -> int:
    from nppsim.replays import playback

    played = []

    def gathered():
        for one in playback.play_files(playback.find_files(arguments.paths)):
            played.append(one)
            yield one

    if arguments.json:
        print(json.dumps([asdict(one) for one in gathered()], indent=2))
    else:
        for line in playback.table(gathered()):
            print(line, flush=True)
    return 1 if any(one.ending == playback.UNREADABLE for one in played) else 0


# ---------------------------------------------------------------------------------------------------------------------
# diff


def _diff(arguments) -> int:
    from nppsim.replays import diff

    if arguments.out:
        _check_picture(arguments.out)
    a, b = Replay.load(arguments.a), Replay.load(arguments.b)
    difference, *runs = diff.compare_replays(a, b, arguments.sections)
    print(json.dumps(asdict(difference), indent=2) if arguments.json else diff.difference_text(difference))
    if arguments.out:
        from nppsim.pictures import render  # Pillow is an extra

        labels = Path(arguments.a).name, Path(arguments.b).name
        render.draw_two_routes(a.level, runs, labels, parted=difference.positions_part).save(arguments.out)
    return 0


# ---------------------------------------------------------------------------------------------------------------------
# bench


def _bench(arguments) -> int:
    from nppsim.measure import bench
    from nppsim.measure.machine import machine as this_machine
    from nppsim.measure.machine import versions

    if arguments.themes and not arguments.traces:
        raise CommandError("--themes names parts of a trace file: give --traces FILE.h5 too")
    if arguments.start and (arguments.traces or arguments.levels or arguments.threads):
        raise CommandError("--start measures the start alone: leave out --traces, --levels and --threads")
    machine = this_machine() | versions()
    if arguments.start:
        with tempfile.TemporaryDirectory() as folder:
            seconds = bench.measure_start(folder)
        if arguments.json:
            print(json.dumps({"machine": machine, "start_s": seconds}, indent=2))
        else:
            print(f"first start (compiles): {seconds['first']:.1f} s; later starts: {seconds['later']:.1f} s")
        return 0
    threads = arguments.threads or range(1, min(machine["cores"], 2) + 1)
    if not arguments.json:
        print(f"{machine['cpu']}, {machine['cores']} cores; Python {machine['python']}, Numba {machine['numba']}")
        print(f"{'workload':<20} {'unit':<10} {'per s':>12} {'per s, core':>12} {'slowest':>12} {'fastest':>12}   "
              "Python, Numba loop, 10^6/s")  # fmt: skip
    workloads = {}
    try:
        if arguments.traces:
            plays = bench.trace_plays(arguments.traces, arguments.themes)
        else:
            plays = bench.folder_plays(arguments.levels) if arguments.levels else bench.generated_plays()
        measured = bench.benchmark(plays, rounds=arguments.rounds, seconds=arguments.seconds, threads=threads)
        for name, result in measured:
            workloads[name] = result
            if not arguments.json:
                figures = [f"{result[key]:>12,.0f}" for key in ("per_s", "per_s_per_core", "slowest", "fastest")]
                loops = result["calibration"]
                print(f"{name:<20} {result['unit']:<10}", *figures, f"  {loops['python']:.1f}, {loops['numba']:.0f}",
                      flush=True)  # fmt: skip
    except ValueError as error:
        raise CommandError(str(error)) from error
    if arguments.json:
        print(json.dumps({"machine": machine, "workloads": workloads}, indent=2))
    return 0


# ---------------------------------------------------------------------------------------------------------------------
# fuzz


def _fuzz(arguments) -> int:
    from numba.core import config

    from nppsim.fuzz import GROUP, fuzz

    if arguments.count < 1 or arguments.first < 0:
        raise CommandError(f"--count {arguments.count} --first {arguments.first}: give at least one case, from 0 on")

    def progress(done):
        at = arguments.first + done
        line = f"\r{done} of {arguments.count} cases; next: {at} to {at + GROUP - 1} "
        print(line, end="", file=sys.stderr, flush=True)

    report = fuzz(arguments.count, arguments.seed, arguments.first, progress)
    print(file=sys.stderr)
    print(f"{'kind':<16} {'tried':>8} {'played':>8} {'refused':>8}")
    for kind, tried in sorted(report.tried.items()):
        print(f"{kind:<16} {tried:>8} {report.played[kind]:>8} {tried - report.played[kind]:>8}")
    refused = ", ".join(f"{count} {name}" for name, count in report.refused.most_common()) or "nothing"
    print(f"{report.tried.total()} cases tried, {report.frames} frames played; refused: {refused}")
    for failure in report.failures:
        print(f"FAILED: {failure}")
    print(f"{len(report.failures)} failures; bounds check {'on' if config.BOUNDSCHECK else 'off'}")
    return 1 if report.failures else 0


# ---------------------------------------------------------------------------------------------------------------------
# render, generate


def _render(arguments) -> int:
    from nppsim.pictures import render  # Pillow is an extra

    if arguments.rulebook:
        return _render_rulebook(arguments)
    if len(arguments.paths) != (1 if arguments.sheet else 2):
        raise CommandError("give LEVEL and OUT.png, or --sheet DIR and OUT.png")
    *level, out = arguments.paths
    if arguments.count < 1:
        raise CommandError(f"--count {arguments.count} must be at least 1")
    _check_picture(out)
    if arguments.sheet:
        levels = LevelSet.open(arguments.sheet)
        count = min(arguments.count, len(levels))
        shown = [i * len(levels) // count for i in range(count)]
        picture = render.contact_sheet([levels[i] for i in shown], [levels.entries[i].file for i in shown])
    elif arguments.replay:
        drawn = Level.load(level[0])
        run = nppsim.simulate(drawn, Replay.load(arguments.replay).inputs)
        picture = render.draw_route(drawn, run, arguments.scale, title=Path(level[0]).name)
    else:
        picture = render.draw_level(Level.load(level[0]), arguments.scale)
    picture.save(out)
    print(f"{out}: {picture.width} x {picture.height}")
    return 0


def _render_rulebook(arguments: argparse.Namespace) -> int:
    from nppsim.pictures.rulebook import FIGURES  # Pillow is an extra

    if arguments.paths:
        raise CommandError(f"--rulebook takes a folder alone; leave out {' '.join(arguments.paths)}")
    folder = Path(arguments.rulebook)
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in FIGURES.items():
        picture = draw()
        picture.save(folder / f"{name}.png")
        print(f"{folder / name}.png: {picture.width} x {picture.height}")
    return 0


def _check_picture(path: str) -> None:
    if Path(path).suffix.lower() != ".png":
        raise CommandError(f"{path}: the picture is a PNG file; give a name that ends in .png")


def _generate(arguments) -> int:
    from nppsim.generate import generate

    if arguments.seed < 0 or (arguments.count is not None and arguments.count < 1):
        raise CommandError(f"seed {arguments.seed} must be at least 0, and --count {arguments.count} at least 1")
    try:
        if arguments.count is None:
            generate(arguments.category, arguments.seed, arguments.difficulty)[0].save(arguments.out)
        else:
            seeds = range(arguments.seed, arguments.seed + arguments.count)
            LevelSet.write(arguments.out, (generate(arguments.category, seed, arguments.difficulty) for seed in seeds))
    except ValueError as error:
        raise CommandError(str(error)) from error
    print(arguments.out)
    return 0


# ---------------------------------------------------------------------------------------------------------------------
# plan


def _plan(arguments) -> int:
    from nppsim.planner import plan, polish

    if arguments.budget < 1:
        raise CommandError(f"--budget {arguments.budget} must be at least 1")
    if arguments.polish < 0:
        raise CommandError(f"--polish {arguments.polish} must be at least 0")
    if arguments.seed < 0:
        raise CommandError(f"--seed {arguments.seed} must be at least 0")
    level = Level.load(arguments.level)
    options = {"seed": arguments.seed, "min_hold": arguments.min_hold}
    try:
        run = plan(level, arguments.frame_skip, budget=arguments.budget, noise=arguments.noise, **options)
        if run is not None and arguments.polish > 0:
            run = polish(level, run, arguments.frame_skip, budget=arguments.polish, **options)
    except ValueError as error:
        raise CommandError(str(error)) from error
    if run is None:
        remedy = "raise --budget" if LevelBank([level]).reachable[0] else "no way leads over an exit switch to its exit"
        odd = f"; what is odd about the level: {'; '.join(level.warnings[:3])}" if level.warnings else ""
        raise CommandError(f"{arguments.level}: no run found in {arguments.budget} frames; {remedy}{odd}")
    Replay(level, run.inputs, success=True).save(arguments.out)
    print(f"{arguments.out}: {run.frames} frames, found by simulating {run.simulated:,}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
