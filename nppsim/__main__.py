"""Command line of the simulator: ``python -m nppsim COMMAND``, see ``--help``."""

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING

import nppsim
from nppsim import errors
from nppsim.errors import ConfigError, escaped
from nppsim.io.files import check_output_file, check_output_folder, replacing, table, write_text
from nppsim.io.progress import progress_bar
from nppsim.io.reading import as_utf8
from nppsim.levels import campaign
from nppsim.levels.level import Level
from nppsim.levels.level_set import LevelSet, LevelSetError
from nppsim.parallel.workers import usable_cores
from nppsim.planner.settings import OBJECTIVE_HELP, OBJECTIVES, TIME, PlannerSettings
from nppsim.replays.input_text import from_text, to_text
from nppsim.replays.playback import is_named_like_replays, self_destructed
from nppsim.replays.replay import REPLAY_SUFFIX, Replay, is_replay_set, read_bytes
from nppsim.replays.score import score, seconds, time_text
from nppsim.settings import Parser, Setting
from nppsim.studio import command as studio

if TYPE_CHECKING:
    from PIL.Image import Image

Command = Callable[[argparse.Namespace], int | None]
Flags = Callable[[Parser], None]
_COMMANDS: dict[str, tuple[Command, Flags, str]] = {}  # name -> (function, function that adds its flags, description)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status.

    Status 0: success.  1: ``verify`` found a difference, ``replays`` an unreadable file, or ``bench`` a loss of speed.
    2: the command failed.
    """
    argv = sys.argv[1:] if argv is None else list(argv)

    def function() -> int | None:
        if argv and argv[0] not in _COMMANDS and argv[0][:1] != "-":
            plugins = _plugin_commands()
            if argv[0] in plugins:
                return plugins[argv[0]].load()(argv[1:])
            alike = get_close_matches(argv[0], [*_COMMANDS, *plugins], 1)
            hint = f"did you mean {alike[0]}? " if alike else ""
            raise ConfigError(f"there is no command {argv[0]!r}; {hint}nppsim --help lists all commands")
        arguments = _parser().parse_args(argv)
        return arguments.function(arguments)

    return errors.run(function)


def _command(name: str, text: str, flags: Flags) -> Callable[[Command], Command]:
    """Return a decorator that registers a function as the command ``name``."""

    def register(command: Command) -> Command:
        _COMMANDS[name] = (command, flags, text)
        return command

    return register


def _plugin_commands() -> dict[str, EntryPoint]:
    """Return the commands that installed packages add (entry points of the group "nppsim.commands"), by name.

    A command is a function that gets the remaining arguments and returns an exit status.
    """
    return {entry.name: entry for entry in entry_points(group="nppsim.commands")}


def _parser() -> Parser:
    plugins = ", ".join(_plugin_commands())
    epilog = f"further commands, each with a --help of its own: {plugins}" if plugins else None
    parser = Parser(prog="nppsim", description=nppsim.__doc__, epilog=epilog)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (function, flags, text) in _COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(function=function, parser=command)
        flags(command)
    return parser


def _verify_flags(parser: Parser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE.h5", help="trace files")


@_command("verify", "replay recorded traces and compare every number, bit for bit", _verify_flags)
def _verify(arguments: argparse.Namespace) -> int:
    themes = [item for file in arguments.files for item in nppsim.verify(file).items()]
    rows = [(theme, r.cases, r.exact, len(r.refused), r.frames) for theme, r in themes]
    print(table(("theme", "cases", "exact", "refused", "frames"), rows))
    for theme, result in themes:
        if result.first_divergence:
            print(f"{theme} diverges: {result.first_divergence}")
        for refusal in result.refused:
            print(f"{theme} refused: {refusal}")
    cases, passed = sum(r.cases for _, r in themes), sum(r.exact for _, r in themes)
    print(f"{passed} of {cases} cases are bit-exact")
    return 0 if passed == cases > 0 else 1


def _levels_flags(parser: Parser) -> None:
    parser.add_argument(
        "path", metavar="PATH", help="a level, a folder of levels, or a campaign file of the game (S.txt)"
    )
    parser.add_argument("--skip-bad-levels", action="store_true", help="leave out unreadable levels instead of failing")
    parser.add_argument("--json", action="store_true", help="print JSON, one object per level")


@_command("levels", "list levels with title, entities, path length, and how exactly they are simulated", _levels_flags)
def _levels(arguments: argparse.Namespace) -> int:
    from nppsim.report.listing import level_facts

    levels, problems = [], []
    level_set = LevelSet.at(arguments.path)
    for i in progress_bar(range(len(level_set)), "reading", unit="level"):
        try:
            levels.append(level_set[i])
        except LevelSetError as error:
            problems.append(str(error))
    if problems and not arguments.skip_bad_levels:
        raise ConfigError(f"{'; '.join(problems)}; or leave these levels out (--skip-bad-levels)")
    for problem in problems:
        print(f"left out: {escaped(problem)}", file=sys.stderr)
    facts = list(progress_bar(level_facts(levels), "searching paths", total=len(levels), unit="level"))
    if arguments.json:
        print(json.dumps(facts, indent=2))
        return 0
    rows = [
        (fact["name"], fact["id"] or "-", fact["title"], fact["support"])
        + ("none found" if fact["path_length"] is None else round(fact["path_length"]),)
        + (", ".join(f"{count} {name}" for name, count in fact["entities"].items()),)
        for fact in facts
    ]
    print(table(("level", "id", "title", "support", "path, px", "entities"), rows, align="llllrl"))
    counts = Counter(fact["support"] for fact in facts)
    unreachable = sum(fact["path_length"] is None for fact in facts)
    total = f"{len(facts)} level{'s' * (len(facts) != 1)}"
    print(f"{total}: {', '.join(f'{n} {grade}' for grade, n in counts.items())}; {unreachable} without a path")
    return 0


def _simulate_flags(parser: Parser) -> None:
    parser.add_argument("level", metavar="LEVEL|REPLAY", help="a replay; with --replay, a level")
    parser.add_argument("--replay", metavar="FILE", help="play the inputs of this replay on LEVEL")
    parser.add_argument("--json", action="store_true", help="print JSON")


@_command("simulate", "play a replay back and print the outcome, position, score and time", _simulate_flags)
def _simulate(arguments: argparse.Namespace) -> None:
    replay = Replay.load(arguments.replay or arguments.level)
    level = Level.load(arguments.level) if arguments.replay else replay.level
    if level != replay.level:
        print(f"note: {arguments.replay} was recorded on another level", file=sys.stderr)
    for warning in dict.fromkeys((*level.warnings, *replay.warnings)):
        print(f"warning: {warning}", file=sys.stderr)
    run = nppsim.simulate(level, replay.inputs)  # a replay has at least one frame
    gold = int(run.gold[-1])
    facts: dict[str, object] = {
        "level": arguments.level,
        "fingerprint": level.fingerprint,
        "outcome": run.outcome,
        "self_destruct": self_destructed(run, replay.inputs),
        "frames": run.frames,
        "inputs": replay.frames,
        "position": run.position[-1].tolist(),
        "velocity": run.velocity[-1].tolist(),
        "gold": gold,
        "time": seconds(run.frames),
        "score": score(run.frames, gold) if run.won else None,
        "win_fraction": run.win_fraction,
    }
    if arguments.json:
        print(json.dumps(facts, indent=2))
        return
    if facts.pop("self_destruct"):
        facts["outcome"] = f"{run.outcome} (by the self-destruct key)"
    for name, value in facts.items():
        print(f"{name.replace('_', ' '):<13} {'-' if value is None else value}")


def _replays_flags(parser: Parser) -> None:
    parser.add_argument(
        "paths", nargs="+", metavar="FILE|FOLDER", help="replays, attract files, replay sets (*.h5), or folders of them"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


@_command("replays", "play many replays back; print if each is valid, and how it ends", _replays_flags)
def _replays(arguments: argparse.Namespace) -> int:
    from nppsim.replays import playback

    files, played = playback.find_files(arguments.paths), []

    def results() -> Iterator[playback.PlaybackResult]:
        for run in playback.play_files(files):
            played.append(run)
            yield run

    if arguments.json:
        print(json.dumps([asdict(run) for run in results()], indent=2))
    else:
        for line in playback.lines(results()):
            print(line, flush=True)
    return 1 if any(run.ending == playback.UNREADABLE for run in played) else 0


def _diff_flags(parser: Parser) -> None:
    parser.add_argument("a", metavar="A", help="first replay")
    parser.add_argument("b", metavar="B", help="second replay, of the same level")
    parser.add_flag(Setting("number of path sections to compare", flag="sections", kind=int, default=10, low=1))
    parser.add_argument("--out", metavar="PNG", help="draw both runs into this file (extra: video)")
    parser.add_argument("--json", action="store_true", help="print JSON")


@_command("diff", "compare two runs of one level: first difference, frames gained and lost per section", _diff_flags)
def _diff(arguments: argparse.Namespace) -> None:
    from nppsim.replays import diff

    if arguments.out:
        _check_picture(arguments.out, "--out")
    a, b = Replay.load(arguments.a), Replay.load(arguments.b)
    difference, *runs = diff.compare_replays(a, b, arguments.sections)
    print(json.dumps(asdict(difference), indent=2) if arguments.json else diff.difference_text(difference))
    if arguments.out:
        from nppsim.pictures import render

        labels = Path(arguments.a).name, Path(arguments.b).name
        _save(render.draw_two_routes(a.level, runs, labels, parted=difference.positions_part), arguments.out)


def _bench_flags(parser: Parser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_flag(Setting("rounds; the median is reported", flag="rounds", kind=int, default=5, low=1))
    parser.add_flag(
        Setting("seconds of all rounds of a workload together", flag="seconds", kind=float, default=1.5, above=0)
    )
    threads = "numbers of threads to measure; default: 1, and 2 with two or more cores"
    parser.add_flag(Setting(threads, flag="threads", kind=int, many=True, default=None, low=1))
    traces = "play the recorded inputs of a trace file; default: random inputs on generated levels"
    parser.add_argument("--traces", metavar="FILE.h5", help=traces)
    levels = "also play at random on the game's levels: a campaign file, or a folder of campaign files"
    parser.add_argument("--campaign", metavar="PATH", help=levels)
    parser.add_argument(
        "--start", action="store_true", help="only measure the start-up time, with and without compilation"
    )
    stored = "compare with stored output of --json, of any machine, by the speed of calibration loops"
    parser.add_argument("--baseline", metavar="FILE.json", help=stored)


@_command("bench", "measure the speed of the simulator", _bench_flags)
def _bench(arguments: argparse.Namespace) -> int:
    from nppsim.measure import bench, machine, timing, workload

    if arguments.start and (arguments.traces or arguments.threads or arguments.campaign or arguments.baseline):
        raise ConfigError("--start only measures starts: leave out --traces, --campaign, --threads and --baseline")
    here = machine.machine() | machine.versions()
    if arguments.start:
        with tempfile.TemporaryDirectory() as folder:
            seconds = bench.measure_start(folder)
        if arguments.json:
            print(json.dumps({"machine": here, "start_s": seconds}, indent=2))
        else:
            print(f"first start (compiles): {seconds['first']:.1f} s; later starts: {seconds['later']:.1f} s")
        return 0
    baseline = timing.load_baseline(arguments.baseline) if arguments.baseline else {}
    if arguments.traces:
        plays = workload.trace_plays(arguments.traces)
    else:
        plays = workload.generated_plays(bench.BENCH_CATEGORIES, bench.LEVELS_PER_CATEGORY)
    campaign, left_out = workload.campaign_levels(arguments.campaign) if arguments.campaign else ([], 0)
    if not campaign:
        print("campaign workloads are left out: give the game's levels with --campaign PATH", file=sys.stderr)
    if left_out:
        print(f"{left_out} damaged or unsupported levels of {arguments.campaign} are left out", file=sys.stderr)
    settings = {"rounds": arguments.rounds, "seconds": arguments.seconds}
    threads = arguments.threads or range(1, min(usable_cores(), 2) + 1)
    workloads = {}
    for name, result in bench.benchmark(plays, threads=threads, campaign=campaign, **settings):
        workloads[name] = result
        print(f"\r{name:<20} {result['per_s']:>14,.0f} {result['unit']}/s ", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    if arguments.json:
        print(json.dumps({"machine": here, "workloads": workloads}, indent=2))
    else:
        print(f"{here['cpu']}, {here['cores']} cores; Python {here['python']}, Numba {here['numba']}")
        print(bench.results_table(workloads, baseline))
    slower = [name for name in workloads if name in baseline and timing.is_slower(workloads[name], baseline[name])]
    if slower:
        print(
            f"more than {timing.TOLERANCE:.0%} slower than {arguments.baseline}: {', '.join(slower)}", file=sys.stderr
        )
    return int(bool(slower))


def _colours_flag(parser: Parser) -> None:
    from nppsim.pictures.schemes import CLASSIC, SCHEMES

    parser.add_flag(Setting("colour scheme", flag="colours", kind=str, default=CLASSIC, choices=tuple(SCHEMES)))


def _render_flags(parser: Parser) -> None:
    parser.add_argument("paths", nargs="+", metavar="LEVEL OUT.png", help="with --sheet: only OUT.png")
    parser.add_argument("--replay", metavar="FILE", help="also draw the path of this replay")
    parser.add_argument(
        "--sheet", metavar="DIR", help="draw the levels of a folder in one picture, with their par times"
    )
    parser.add_argument("--replays", metavar="SET.h5", help="with --sheet: also mark the outcomes of these runs")
    count = "maximum number of levels on a sheet; of more levels, evenly spaced ones are drawn"
    parser.add_flag(Setting(count, flag="count", kind=int, default=40, low=1))
    parser.add_flag(Setting("magnification of a single level", flag="scale", kind=float, default=1.0, above=0))
    _colours_flag(parser)


@_command("render", "draw a level, the path of a replay, or a sheet of levels (extra: video)", _render_flags)
def _render(arguments: argparse.Namespace) -> None:
    errors.import_optional("PIL", "video")
    from nppsim.pictures.schemes import colour_scheme

    if arguments.replays and not arguments.sheet:
        raise ConfigError("--replays needs --sheet; give --replay FILE to draw the path of one run")
    if arguments.replay and arguments.sheet:
        raise ConfigError("--replay has no effect with --sheet; give --replays SET.h5, or leave one of them out")
    if len(arguments.paths) != (1 if arguments.sheet else 2):
        raise ConfigError("give LEVEL and OUT.png, or --sheet DIR and OUT.png")
    *level, out = arguments.paths
    _check_picture(out, "OUT.png")
    with colour_scheme(arguments.colours):
        if arguments.sheet:
            _save_and_report(_sheet(arguments), out)
        else:
            drawn = Level.load(level[0])
            _save_and_report(_picture(arguments, drawn), out, f"; support: {drawn.support_line}")


def _sheet(arguments: argparse.Namespace) -> "Image":
    """Draw the levels of a folder."""
    from nppsim.pictures import render
    from nppsim.replays.notes import level_notes

    levels = LevelSet.open(arguments.sheet)
    count = min(arguments.count, len(levels))
    shown = [i * len(levels) // count for i in range(count)]
    notes, outcomes = level_notes([levels[i] for i in shown], [levels.entries[i] for i in shown], arguments.replays)
    labels = [levels.entries[i].file for i in shown]
    return render.contact_sheet([levels[i] for i in shown], labels, notes=notes, outcomes=outcomes)


def _picture(arguments: argparse.Namespace, level: Level) -> "Image":
    """Draw a level, or the path of a replay on it."""
    from nppsim.pictures import render

    if not arguments.replay:
        return render.draw_level(level, arguments.scale, crop=True)
    run = nppsim.simulate(level, Replay.load(arguments.replay).inputs)
    title = level.caption if level.id else level.title.strip() or Path(arguments.paths[0]).name
    return render.draw_route(level, run, arguments.scale, crop=True, title=title)


def _check_picture(path: str, flag: str) -> None:
    errors.import_optional("PIL", "video")
    check_output_file(path, flag, ".png")


def _save(picture: "Image", path: str | Path) -> None:
    with replacing(path) as temporary:
        picture.save(temporary, "PNG")


def _save_and_report(picture: "Image", path: str | Path, more: str = "") -> None:
    _save(picture, path)
    print(f"{path}: {picture.width} x {picture.height}{more}")


def _extract_flags(parser: Parser) -> None:
    parser.add_argument(
        "source", metavar="LEVEL|REPLAY", help="a level, a replay, or an entry of a set (SET.h5#7, S.txt#12)"
    )
    parser.add_argument(
        "out", metavar="OUT", help="level file to write: OUT.level (text), OUT.txt (campaign) or OUT.map"
    )


@_command("extract", "write the level of a replay, replay set or campaign file to a separate file", _extract_flags)
def _extract(arguments: argparse.Namespace) -> None:
    line = campaign.locate(arguments.source)
    _check_level_file(arguments.out, "OUT", inputs=[str(line[0]) if line else arguments.source])
    if campaign.is_campaign_file(arguments.out) and len(campaign.level_numbers(arguments.out)) > 1:
        raise ConfigError(
            "is a campaign file of several levels, all of which would be replaced; give another name",
            "OUT",
            arguments.out,
        )
    level = _load_level(arguments.source)
    if Path(arguments.out).suffix.lower() == campaign.SUFFIX:
        write_text(arguments.out, campaign.to_line(level) + "\n")
    else:
        level.save(arguments.out)
    for warning in level.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    print(f"{arguments.out}: {len(level.records)} records, fingerprint {level.fingerprint[:12]}")


def _inputs_flags(parser: Parser) -> None:
    parser.add_argument(
        "source", metavar="REPLAY|TEXT", help="a replay, whose inputs are printed; with --out, their text"
    )
    parser.add_argument(
        "--level", metavar="LEVEL", help="level, or a replay of it, on which the inputs of TEXT are played"
    )
    parser.add_argument("--out", metavar="OUT.replay", help="write the inputs of TEXT as a replay")


@_command("inputs", "print the inputs of a replay as text, or write such a text as a replay", _inputs_flags)
def _inputs(arguments: argparse.Namespace) -> None:
    source, out = arguments.source, arguments.out
    if (arguments.level is None) != (out is None):
        raise ConfigError("are used together, to write a replay", "--level and --out")
    if out is None:
        replay = Replay.load(source)
        title = replay.level.caption if replay.level.id else replay.level.title.strip()
        print(to_text(replay.inputs, ": ".join(filter(None, (Path(source).name, title)))), end="")
        return
    check_output_file(out, "--out", REPLAY_SUFFIX, inputs=[source, arguments.level])
    inputs = from_text(as_utf8(read_bytes(source)).decode("utf-8", "replace"), source)
    level = _load_level(arguments.level)
    run = nppsim.simulate(level, inputs)
    Replay(level, inputs, success=run.won, name=out).save(out)
    print(f"{out}: {run.outcome} after {run.frames} frames ({time_text(run.frames)})")


def _check_level_file(path: str, flag: str, inputs: Sequence[str] = ()) -> None:
    if is_named_like_replays(Path(path)):
        raise ConfigError("would be read as a replay; give another name, such as OUT.map or OUT.level", flag, path)
    check_output_file(path, flag, inputs=inputs)


def _load_level(path: str) -> Level:
    """Load a level from a level file, a replay, or an entry of a replay set."""
    return Replay.load(path).level if is_replay_set(path) else Level.load(path)


def _film_flags(parser: Parser) -> None:
    parser.add_argument("replay", metavar="REPLAY", help="a replay, or an entry of a set (SET.h5#7)")
    parser.add_argument("out", metavar="OUT.mp4", help="file to write: OUT.mp4, OUT.gif or OUT.webp")
    parser.add_argument("--level", metavar="LEVEL", help="play the inputs on this level (default: the replay's level)")
    parser.add_argument(
        "--title",
        type=str,
        metavar="TEXT",
        help="text below the picture; default: title of the level, else file name of the replay",
    )
    text = "also show this run, in a pale colour; without REPLAY: a run found by the planner"
    parser.add_argument("--ghost", nargs="?", const="planner", metavar="REPLAY", help=text)
    parser.add_flag(Setting("pictures per second, 1 to 60", flag="fps", kind=int, default=30, low=1, high=60))
    scale = "magnification; 1 shows a level at 1056 x 600 px"
    parser.add_flag(Setting(scale, flag="scale", kind=float, default=1.0, above=0))
    _colours_flag(parser)


@_command("film", "record a replay as a video in real time (extra: video)", _film_flags)
def _film(arguments: argparse.Namespace) -> None:
    for module in ("av", "PIL"):
        errors.import_optional(module, "video")
    from nppsim.pictures.film import FORMATS, record
    from nppsim.pictures.render import FilmSettings
    from nppsim.pictures.schemes import colour_scheme
    from nppsim.planner.second_run import second_run

    check_output_file(arguments.out, "OUT.mp4", FORMATS)
    replay = Replay.load(arguments.replay)
    level = _load_level(arguments.level) if arguments.level else replay.level
    run = nppsim.simulate(level, replay.inputs)
    title = (level.title.strip() or Path(arguments.replay).name) if arguments.title is None else arguments.title
    second, name = second_run(level, arguments.ghost) if arguments.ghost else (None, "")
    settings = FilmSettings(fps=arguments.fps, scale=arguments.scale, title=title, second=second, second_name=name)
    with colour_scheme(arguments.colours):
        record(arguments.out, level, replay.inputs, settings, run=run)
    print(
        f"{arguments.out}: {run.outcome} after {run.frames} frames ({time_text(run.frames)}); support: {level.support_line}"
    )


def _page_flags(parser: Parser) -> None:
    parser.add_argument("replays", nargs="+", metavar="REPLAY", help="replays, or entries of replay sets (SET.h5#7)")
    parser.add_argument("--out", metavar="OUT.html", default="run.html", help="page to write; default: %(default)s")
    parser.add_argument("--title", type=str, metavar="TEXT", help="title of the page; default: that of its level")


@_command("page", "write one HTML file that plays runs in any browser, without Python", _page_flags)
def _page(arguments: argparse.Namespace) -> None:
    from nppsim.studio.page import page, runs_of_replays

    check_output_file(arguments.out, "--out", ".html")
    text = page(runs_of_replays(arguments.replays), arguments.title or "")
    write_text(arguments.out, text)
    count = len(arguments.replays)
    print(f"{arguments.out}: {count} run{'s' * (count != 1)}, {len(text) / 1024:.0f} KiB")


def _generate_flags(parser: Parser) -> None:
    parser.add_argument("category", metavar="CATEGORY", help="category of the level, e.g. simplest")
    parser.add_argument("out", metavar="OUT", help="level file to write; with --count: new folder")
    seed = "random seed of the first level"
    parser.add_flag(Setting(seed, flag="seed", aliases=("seeds",), kind=int, default=0, low=0))
    parser.add_flag(
        Setting("write a folder of N levels with seeds SEED to SEED + N - 1", flag="count", kind=int, low=1)
    )
    difficulty = "0 (easiest) to 1 (hardest) within the category; default: all difficulties"
    parser.add_flag(Setting(difficulty, flag="difficulty", kind=float, low=0, high=1))


@_command("generate", "generate a level, or a folder of levels, of one category", _generate_flags)
def _generate(arguments: argparse.Namespace) -> None:
    from nppsim.generate import generate, recipe

    recipe(arguments.category, arguments.seed, arguments.difficulty)  # checks the arguments before a folder is created
    if arguments.count is None:
        _check_level_file(arguments.out, "OUT")
        level, _ = generate(arguments.category, arguments.seed, arguments.difficulty)
        level.save(arguments.out)
    else:
        check_output_folder(arguments.out, "OUT")
        seeds = range(arguments.seed, arguments.seed + arguments.count)
        LevelSet.write(arguments.out, (generate(arguments.category, seed, arguments.difficulty) for seed in seeds))
    print(arguments.out)


def _plan_flags(parser: Parser) -> None:
    parser.add_argument("level", metavar="LEVEL", help="a level file")
    parser.add_argument("out", metavar="OUT.replay", help="replay to write")
    parser.add_flag(Setting(OBJECTIVE_HELP, flag="objective", kind=str, default=TIME, choices=OBJECTIVES))
    for name in ("frame_skip", "seed", "budget", "min_hold", "noise"):
        parser.add_setting(PlannerSettings, name)
    polish = "additional frames to simulate in order to shorten the run, or to improve it for the objective"
    parser.add_flag(Setting(polish, flag="polish", kind=int, default=0, low=0))


@_command("plan", "search for a run that finishes a level, and write it as a replay", _plan_flags)
def _plan(arguments: argparse.Namespace) -> None:
    from nppsim.bank import LevelBank
    from nppsim.planner import better_runs, gold_in_level, plan

    settings = arguments.parser.build(PlannerSettings, arguments)
    check_output_file(arguments.out, "OUT.replay", REPLAY_SUFFIX, inputs=[arguments.level])
    level = Level.load(arguments.level)
    same = {"seed": settings.seed, "min_hold": settings.min_hold}
    objective = arguments.objective
    budget = settings.budget if objective == TIME else settings.budget + arguments.polish
    run = plan(level, settings.frame_skip, objective=objective, budget=budget, noise=settings.noise, **same)
    if run is None:
        remedy = "raise --budget" if LevelBank([level]).reachable[0] else "no path leads via an exit switch to its exit"
        warnings = f"; warnings about the level: {'; '.join(level.warnings[:3])}" if level.warnings else ""
        raise ConfigError(f"{arguments.level}: no run found in {settings.budget} frames; {remedy}{warnings}")
    if arguments.polish and objective == TIME:
        try:
            for better in better_runs(level, run, TIME, settings.frame_skip, budget=arguments.polish, **same):
                run = better
        except KeyboardInterrupt:
            Replay(level, run.inputs, success=True).save(arguments.out)
            raise KeyboardInterrupt(f"{arguments.out}: {run.frames} frames, the shortest run so far") from None
    Replay(level, run.inputs, success=True).save(arguments.out)
    gold = f"objective {objective}: {run.gold} of {gold_in_level(level)} gold, " if objective != TIME else ""
    points = f", score {score(run.frames, run.gold):.3f}" if gold else ""
    print(
        f"{arguments.out}: {gold}{run.frames} frames{points}; {run.simulated:,} frames were simulated to find the run"
    )


_command("watch", "watch an agent play a level, in the studio (extra: studio)", studio.watch_flags)(studio.run)
_command("studio", "play, record, watch and edit levels in the browser (extra: studio)", studio.flags)(studio.run)


if __name__ == "__main__":
    sys.exit(main())
