"""Command ``scripts/solve.py``: solve levels and write the results.

    run(*parse(argv))

Writes runs, videos, ``results.json`` and ``report.html`` into the folder of ``--out``, and replay sets for training into the
folder of ``--demonstrations``, if given.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import MISSING, asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from statistics import mean, median
from typing import TYPE_CHECKING, Any

import numpy as np

from nppsim.actions import ACTION_INPUT
from nppsim.bank import LevelBank
from nppsim.errors import ConfigError
from nppsim.io.files import check_output_folder, locked, new_folder, replacing, table, write_json
from nppsim.io.progress import progress_bar
from nppsim.levels.level import MODELLED, UNSUPPORTED, Level, left_out, warning_lines
from nppsim.levels.level_set import LevelSetError
from nppsim.parallel.cluster import EXECUTION_SETTINGS, Workers
from nppsim.parallel.executor import open_executor
from nppsim.parallel.workers import usable_cores
from nppsim.pictures import render
from nppsim.pictures.film import record
from nppsim.pictures.schemes import colour_scheme
from nppsim.planner import gold_in_level
from nppsim.planner.gold import rank
from nppsim.planner.search import WinningRun, verified
from nppsim.planner.settings import LOW_GOLD, OBJECTIVES, TIME
from nppsim.replays.diff import compare_replays, difference_text
from nppsim.replays.replay import Replay
from nppsim.replays.replay_set import ReplayWriter
from nppsim.replays.score import score, seconds
from nppsim.replays.targets import Targets
from nppsim.report.pages import check_packages, render_page, write_page
from nppsim.settings import Parser, check_settings, same_setting, setting
from nppsim.simulate import simulate
from rl import plugins
from rl.config import ExperimentConfig, VideoConfig
from rl.evaluation.breakdown import losses, losses_text
from rl.policy.player import PickledPolicy
from rl.search.guided_search import GuidePolicy
from rl.search.levels import SolveTask, read_tasks
from rl.search.live import CLOCKS, MEASURED, LivePlayer, load_kernels
from rl.search.solve import PLANNER, Interrupted, Solution, SolveSettings, solve

if TYPE_CHECKING:
    from PIL.Image import Image

SOURCE = "solve"  # "source" in the metadata of demonstrations
LIVE = "live play"  # ``Solution.found_by`` of runs of --live
FOUND, RECORDING = "this run", "recording"  # whose the best known run is, besides PLANNER, whose the par is
LEFT = ("level", "support", "best by", "target", "found by", "why it failed")  # columns with text
REPLAYS, FILMS, ROUTES = "replays", "films", "routes"  # sub-folders of --out


@dataclass(frozen=True)
class Solved:
    """A level with its solution."""

    task: SolveTask
    solution: Solution
    stem: str  # file name of the output files, without suffix

    @property
    def replay(self) -> Replay:
        """The run as a replay."""
        assert self.solution.run is not None
        return Replay(self.task.level, self.solution.run.inputs, success=True, name=self.task.name)

    @cached_property
    def entry(self) -> dict[str, Any]:
        """Entry of the level in ``results.json``; values of the run are None without a run."""
        level, run = self.task.level, self.solution.run
        solution = asdict(self.solution)
        del solution["run"]
        for loss in solution["losses"]:
            del loss["inputs"], loss["farthest_frame"]
        return {
            "level": self.task.name,
            "id": level.id,
            "title": level.title.strip(),
            "category": self.task.category,
            "support": level.support,
            "frames": run and run.frames,
            "par_frames": self.task.par_frames,
            "time": run and seconds(run.frames),
            "gold": run and run.gold,
            "gold_in_level": gold_in_level(level),
            "score": run and score(run.frames, run.gold),
            "recorded_frames": self.task.recorded_frames,
            "best": {objective: self.best(objective) for objective in (*OBJECTIVES, LOW_GOLD)},
            "target": self.task.target and asdict(self.task.target),
            "target_reached": self.task.target and run and self.task.target.is_reached(run.frames, run.gold),
            **solution,
        }

    def best(self, objective: str) -> dict[str, Any] | None:
        """Return frames, gold and origin of the best known run for an objective, or None.

        The gold of par is unknown, so par is compared for the objective "time" only.
        """
        run, task = self.solution.run, self.task
        runs: list[tuple[int | None, int | None, str]] = [
            (run.frames if run else None, run.gold if run else None, FOUND),
            (task.par_frames if objective == TIME else None, None, PLANNER),
            (task.recorded_frames, task.recorded_gold, RECORDING),
        ]
        finished = [(frames, gold, by) for frames, gold, by in runs if frames is not None]
        if not finished:
            return None
        frames, gold, by = min(finished, key=lambda entry: rank(objective, entry[0], entry[1] or 0))
        return {"frames": frames, "gold": gold, "by": by}


@dataclass(frozen=True)
class SolveArguments:
    """Settings of the command, except for the settings of the search."""

    level: Path
    agent: Path = setting(MISSING, "checkpoint of the agent", flag="agent", metavar="CHECKPOINT")
    against: Path | None = setting(None, "replay of a single LEVEL to compare with", flag="against", metavar="REPLAY")
    out: Path = setting(Path("solved"), "new folder for runs, videos and report", flag="out", aliases=("output-dir",))
    targets: Path | None = setting(
        None, "text file of times or scores to reach (docs/play.md)", flag="targets", metavar="FILE"
    )
    demonstrations: Path | None = setting(
        None,
        "also write the runs to this new folder for training, as CATEGORY.h5",
        flag="demonstrations",
        metavar="DIR",
    )
    live: str | None = setting(
        None,
        "play each level live once, with this clock (docs/evaluate.md), instead of searching",
        flag="live",
        choices=tuple(CLOCKS),
    )
    films: int = setting(1, "largest number of videos per category", flag="films", low=0)
    video_fps: int = same_setting(VideoConfig, "video_fps", needs="")
    video_colours: str = same_setting(VideoConfig, "video_colours", needs="")
    allow_unsupported: bool = same_setting(ExperimentConfig, "allow_unsupported", group="")
    workers: int | None = same_setting(Workers, "workers")
    cluster: str | None = same_setting(Workers, "cluster")
    plugins: tuple[str, ...] = same_setting(ExperimentConfig, "plugins")
    debug: bool = same_setting(ExperimentConfig, "debug")

    def __post_init__(self) -> None:
        check_settings(self)
        Workers(self.workers, self.cluster)  # checks the address


def run(arguments: SolveArguments, settings: SolveSettings) -> int:
    """Solve levels, write and print the results; return 1 if a level was not solved, else 0.

    If ``arguments.out`` is not empty, a new folder ``solved_2``, ``solved_3``, ... is used.  On Ctrl-C, the runs found so
    far are saved.
    """
    if arguments.live and settings != SolveSettings(seed=settings.seed):
        raise ConfigError(
            "plays without --objective, --budget, --polish, --improve and --seconds", "--live", arguments.live
        )
    agent, tasks = _prepare(arguments)
    for note in warning_lines(task.level for task in tasks):
        print(note)
    if _has_files(arguments.out):
        arguments = replace(arguments, out=new_folder(arguments.out))
    solved: list[Solved] = []
    demonstrations = locked(arguments.demonstrations) if arguments.demonstrations else nullcontext()
    with locked(arguments.out) as check, demonstrations:
        try:
            stems: set[str] = set()
            for task, solution in _solutions(arguments, settings, agent, tasks):
                check()
                result = Solved(task, solution, file_stem(_file_name(task, solution), stems))
                solved.append(result)
                if solution.run is not None:
                    save_run(result, arguments.out)
        except KeyboardInterrupt:
            where = (
                f"; runs found so far are in {arguments.out}" if any(result.solution.run for result in solved) else ""
            )
            raise KeyboardInterrupt(f"{len(solved)} of {len(tasks)} levels were searched{where}") from None
        finally:
            if arguments.demonstrations is not None:
                write_demonstrations(solved, arguments.demonstrations)
        print(summary_text(solved))
        check()
        _write_report(arguments, settings, solved)
    return int(any(result.solution.run is None for result in solved))


def _prepare(arguments: SolveArguments) -> tuple[PickledPolicy, list[SolveTask]]:
    """Check that packages are installed and output folders usable; load the agent and the levels."""
    check_packages()
    VideoConfig(record_eval_videos=arguments.films > 0).check_packages()
    check_output_folder(arguments.out, "--out")
    if arguments.demonstrations is not None:
        check_output_folder(arguments.demonstrations, "--demonstrations")
        if arguments.demonstrations.resolve() == arguments.out.resolve():
            raise ConfigError(
                "is the folder of --out; give another folder", "--demonstrations", arguments.demonstrations
            )
        if _has_files(arguments.demonstrations):
            raise ConfigError("is not empty; give a new folder", "--demonstrations", arguments.demonstrations)
    plugins.load(arguments.plugins)
    agent = PickledPolicy.of(GuidePolicy.load(arguments.agent), arguments.plugins)
    tasks = _supported(read_tasks(arguments.level, arguments.against), arguments.allow_unsupported)
    if arguments.targets is not None:
        targets = Targets(arguments.targets)
        tasks = [replace(task, target=targets.of(task.level)) for task in tasks]
    if arguments.cluster and len(tasks) == 1:
        raise ConfigError("is only for several levels; leave it out", "--cluster", arguments.cluster)
    return agent, tasks


def _supported(tasks: list[SolveTask], allow_unsupported: bool) -> list[SolveTask]:
    """Remove unsupported levels unless they are allowed, and print a note.  Raises LevelSetError if no level is left."""
    unsupported = [task.level for task in tasks if task.level.support == UNSUPPORTED]
    if allow_unsupported or not unsupported:
        return tasks
    message = left_out(unsupported, len(tasks))
    if len(unsupported) == len(tasks):
        raise LevelSetError(message)
    print(f"left out: {message}")
    return [task for task in tasks if task.level.support != UNSUPPORTED]


def _has_files(folder: Path) -> bool:
    return folder.exists() and any(file.name[0] != "." for file in folder.iterdir())


def _solve_one(agent: PickledPolicy, settings: SolveSettings, live: str | None, task: SolveTask) -> Solution:
    if live is None:
        return solve(task.level, agent.unpack(), settings, threads=1)
    return _play_live(agent.unpack(), settings.seed, live, task.level)


def _play_live(agent: GuidePolicy, seed: int, clock: str, level: Level) -> Solution:
    """Play a level live.  clock: name in CLOCKS."""
    if clock == MEASURED:
        load_kernels(agent)
    player = LivePlayer(level, agent, seed, clock)
    play, run = player.play(), None
    if play.won:
        inputs = np.repeat(ACTION_INPUT[play.actions], agent.frame_skip)
        inputs = inputs[: simulate(level, inputs).frames]
        run = verified(player.search.bank, WinningRun(play.actions, inputs), None, play.simulated)
    evaluated = player.search.evaluated
    frames, found_by = (None, "") if run is None else (run.frames, LIVE)
    lost = [] if play.won else losses([play.record((level, ""), agent.frame_skip)])
    counts = play.simulated, 0, 0, 0, evaluated, evaluated * agent.foreseen
    return Solution(run, TIME, found_by, frames, *counts, lost, play.thoughts)


def _solutions(
    arguments: SolveArguments, settings: SolveSettings, agent: PickledPolicy, tasks: Sequence[SolveTask]
) -> Iterator[tuple[SolveTask, Solution]]:
    """Yield each level with its solution.  A single level is searched with all cores, several levels on one core each.

    With a single level, the best solution so far is yielded on Ctrl-C.
    """
    if len(tasks) == 1 and arguments.live is None:
        with progress_bar(title="searching", total=settings.frames, unit="frame") as bar:
            try:
                solution = solve(tasks[0].level, agent.unpack(), settings, bar=bar, threads=arguments.workers)
            except Interrupted as interruption:
                yield tasks[0], interruption.solution
                raise
            yield tasks[0], solution
        return
    solve_one = partial(_solve_one, agent, settings, arguments.live)
    with (
        progress_bar(title="solving", total=len(tasks), unit="level") as bar,
        open_executor(min(arguments.workers or usable_cores(), len(tasks)), ConfigError, arguments.cluster) as executor,
        executor.map(solve_one, tasks) as solutions,
    ):
        for task, solution in zip(tasks, solutions, strict=True):
            bar.update()
            yield task, solution


def write_demonstrations(solved: Iterable[Solved], folder: Path) -> None:
    """Write the runs of each category to a replay set, CATEGORY.h5."""
    with ExitStack() as stack:
        writers: dict[str, ReplayWriter] = {}
        for result in solved:
            if result.solution.run is not None:
                category = result.task.category
                if category not in writers:
                    writers[category] = stack.enter_context(ReplayWriter(folder / f"{category}.h5"))
                metadata = {
                    "source": SOURCE,
                    "found_by": result.solution.found_by,
                    "par_frames": result.task.par_frames,
                }
                writers[category].append(result.replay, category=category, **metadata)


def _write_report(arguments: SolveArguments, settings: SolveSettings, solved: Sequence[Solved]) -> None:
    filmed: list[dict[str, Any]] = []
    for result in solved:
        shown = (result.task.category, result.solution.run is not None)
        if sum((other["category"], not other["why"]) == shown for other in filmed) < arguments.films:
            with colour_scheme(arguments.video_colours):
                filmed += (
                    film(result, arguments.out, arguments.video_fps) if shown[1] else lost_route(result, arguments.out)
                )
    used = {
        name: value for name, value in (asdict(arguments) | asdict(settings)).items() if name not in EXECUTION_SETTINGS
    }
    settings_text = {name: str(value) if isinstance(value, Path) else value for name, value in used.items()}
    write_json(arguments.out / "results.json", {"settings": used, "levels": [result.entry for result in solved]})
    title = f"{arguments.level.name}: search with {arguments.agent.name}"
    page = render_page(
        "solve.html", title=title, summary=summary(solved), rows=rows(solved), films=filmed, settings=settings_text
    )
    write_page(page, arguments.out / "report.html")
    print(f"runs: {arguments.out / REPLAYS}; page: {arguments.out / 'report.html'}")


# ---------------------------------------------------------------------------------------------------------------------
# Results


def _file_name(task: SolveTask, solution: Solution) -> str:
    """Return the name of the level and, unless the objective is "time", objective, gold, time and score of the run."""
    run = solution.run
    if run is None or solution.objective == TIME:
        return task.name
    numbers = f"gold {run.gold} time {seconds(run.frames):.3f} score {score(run.frames, run.gold):.3f}"
    return f"{task.name} {solution.objective} {numbers}"


def file_stem(name: str, used: set[str]) -> str:
    """Choose an unused name for the files of a level, and add it to ``used``."""
    plain = re.sub(r"\W+", "_", re.sub(r"\.(map|replay|h5)\b", "", name)).strip("_") or "level"
    stem = next(stem for stem in (plain, *(f"{plain}_{i}" for i in range(2, len(used) + 3))) if stem not in used)
    used.add(stem)
    return stem


def why_it_failed(result: Solved) -> str | None:
    """Describe in one line why a level is not finished; None if it is."""
    if result.solution.run is not None:
        return None
    bank = LevelBank([result.task.level])
    if not bank.reachable[0]:
        return "no path leads via an exit switch to its exit"
    return (
        losses_text(result.solution.losses, float(bank.path_length[0]))
        or "the budget is too small: the agent finishes it"
    )


def target_text(result: Solved) -> str | None:
    """Return the target of a level and whether its run reaches it, or None."""
    if result.task.target is None:
        return None
    return f"{result.task.target}, {'reached' if result.entry['target_reached'] else 'not reached'}"


def rows(solved: Sequence[Solved]) -> list[dict[str, Any]]:
    """Return the rows of the result table, one per level."""
    has_targets = any(result.task.target for result in solved)
    return [
        {
            "level": result.task.caption,
            "support": entry["support"],
            "time, s": None if entry["time"] is None else f"{entry['time']:.3f}",
            "score": None if entry["score"] is None else f"{entry['score']:.3f}",
            "gold": None if entry["gold"] is None else f"{entry['gold']} of {entry['gold_in_level']}",
            "frames": entry["frames"],
            "par": entry["par_frames"],
            "of par": f"{entry['frames'] / entry['par_frames']:.2f}"
            if entry["frames"] and entry["par_frames"]
            else None,
            "recorded": entry["recorded_frames"],
            "best by": (entry["best"][entry["objective"]] or {}).get("by"),
            **({"target": target_text(result)} if has_targets else {}),
            "found by": entry["found_by"] or "not found",
            "simulated to find": entry["finding"],
            "to shorten": entry["shortening"],
            **({} if entry["objective"] == TIME else {"for gold": entry["collecting"]}),
            **({} if all(other.solution.run for other in solved) else {"why it failed": why_it_failed(result)}),
            **({"thought, s": f"{thinking_time(result.solution):.2f}"} if result.solution.thoughts else {}),
        }
        for result in solved
        for entry in (result.entry,)
    ]


def thinking_time(solution: Solution) -> float:
    """Return the thinking time of live play, in s."""
    return sum(end - begin for begin, end, _ in solution.thoughts)


def summary(solved: Sequence[Solved]) -> list[str]:
    """Return the results as sentences."""
    levels = [result.entry for result in solved]
    won = [level for level in levels if level["frames"] is not None]
    objective = levels[0]["objective"]
    finders = ", ".join(f"{count} by {name}" for name, count in Counter(e["found_by"] for e in won).most_common())
    lines = [f"solved {len(won)} of {len(solved)}" + (f": {finders}" if won else "")]
    if objective != TIME and won:
        collected, existing = (sum(level[name] for level in won) for name in ("gold", "gold_in_level"))
        goal, wanted = (
            ("none", lambda level: 0) if objective == LOW_GOLD else ("all", lambda level: level["gold_in_level"])
        )
        reached = sum(level["gold"] == wanted(level) for level in won)
        lines.append(
            f"objective {objective}: {collected} of {existing} pieces of gold, {goal} of them on {reached} of {len(won)} "
            f"levels; mean score {mean(level['score'] for level in won):.3f}"
        )
    thinking = [thinking_time(result.solution) for result in solved if result.solution.thoughts]
    if thinking:
        lines.append(f"live: thinking time median {median(thinking):.2f} s, longest {max(thinking):.2f} s")
    modelled = sum(level["support"] == MODELLED for level in won)
    if modelled:
        lines.append(f"{modelled} of {len(won)} runs are on modelled levels: they may end differently in the game")
    ratios = [level["frames"] / level["par_frames"] for level in won if level["par_frames"]]
    if ratios and objective == TIME:
        within = sum(ratio <= 1 for ratio in ratios)
        lines.append(f"length / par: median {median(ratios):.3f}; at most par on {within} of {len(ratios)} levels")
    aimed = [level for level in levels if level["target"]]
    if aimed:
        lines.append(f"targets reached on {sum(bool(e['target_reached']) for e in aimed)} of {len(aimed)} levels")
    beaten = [level["frames"] < level["recorded_frames"] for level in won if level["recorded_frames"]]
    if beaten and objective == TIME:
        lines.append(f"faster than the recording on {sum(beaten)} of {len(beaten)} levels")
    finding, shortening, evaluated, foreseen = (
        mean(level[name] for level in levels) for name in ("finding", "shortening", "evaluated", "foreseen")
    )
    lines.append(
        f"per level: {finding:,.0f} frames simulated to find a run, {shortening:,.0f} to shorten it; {evaluated:,.0f} states "
        "evaluated by the agent" + (f", with up to {foreseen:,.0f} frames simulated for foresight" if foreseen else "")
    )
    return lines


def summary_text(solved: Sequence[Solved]) -> str:
    """Format table and summary, and for a single level the comparison of its run with the recording."""
    level_rows = rows(solved)
    shown = [[f"{value:,}" if isinstance(value, int) else "-" if value is None else value for value in row.values()]
             for row in level_rows]  # fmt: skip
    parts = [
        table(list(level_rows[0]), shown, "".join("l" if name in LEFT else "r" for name in level_rows[0])),
        "",
        *summary(solved),
    ]
    if len(solved) == 1 and solved[0].solution.run and solved[0].task.recorded is not None:
        difference, *_ = compare_replays(solved[0].task.recorded, solved[0].replay)
        parts += ["", "A is the recording, B the run found", difference_text(difference)]
    return "\n".join(parts)


def save_run(run: Solved, folder: Path) -> None:
    """Save the run as a compact replay and as an attract file."""
    run.replay.save(folder / REPLAYS / f"{run.stem}.replay")
    attract = Replay(run.task.level, run.replay.inputs, name=run.task.name)  # attract files do not store success
    attract.save(folder / REPLAYS / f"{run.stem}.attract", format="attract")


def film(result: Solved, folder: Path, fps: int) -> list[dict[str, Any]]:
    """Record a video and draw the route of a run, and of the recording; return the entries of the report."""
    level, replay, name = result.task.level, result.replay, result.task.caption
    run = simulate(level, replay.inputs)
    if result.task.recorded is None:
        picture = render.draw_route(level, run, crop=True, title=name)
    else:
        both = (simulate(level, result.task.recorded.inputs), run)
        picture = render.draw_two_routes(level, both, ("recording", "found"))
    video = f"{FILMS}/{result.stem}.mp4"
    look = render.FilmSettings(fps=fps, title=name, category=result.task.category)
    record(folder / video, level, replay.inputs, look, run=run)
    return [_entry(result, folder, picture) | {"frames": replay.frames, "link": video, "why": ""}]


def lost_route(result: Solved, folder: Path) -> list[dict[str, Any]]:
    """Draw an episode that shows why a level is not finished; return the entries of the report, none without losses."""
    entries = []
    for loss in result.solution.losses[:1]:
        run, title = simulate(result.task.level, loss.inputs), f"{result.task.caption}: {loss.why}"
        picture = render.draw_route(result.task.level, run, crop=True, title=title, marked=loss.farthest_frame)
        entries.append(_entry(result, folder, picture) | {"frames": run.frames, "link": None, "why": loss.why})
    return entries


def _entry(result: Solved, folder: Path, picture: "Image") -> dict[str, Any]:
    """Write the picture of a route; return what entries of the report have in common."""
    path = folder / ROUTES / f"{result.stem}.png"
    with replacing(path) as temporary:
        picture.save(temporary, format="PNG")
    return {"name": result.task.caption, "category": result.task.category, "poster": path.read_bytes()}


def parse(argv: Sequence[str]) -> tuple[SolveArguments, SolveSettings]:
    """Parse the command line."""
    parser = Parser(
        prog="solve.py",
        description="Find runs that finish a level, or each level of a folder, and shorten them, guided by a trained agent.",
    )
    parser.add_argument(
        "level", type=Path, metavar="LEVEL", help="level file, replay or attract file, or a folder of levels or replays"
    )
    parser.add_settings(SolveArguments)
    parser.add_settings(SolveSettings)
    arguments = parser.parse_args(argv)
    return parser.build(SolveArguments, arguments, level=arguments.level), parser.build(SolveSettings, arguments)
