"""Command ``scripts/solve.py``: solve levels and write the results.

    run(*parse(argv))

Writes runs, videos, ``results.json`` and ``report.html`` into the folder of ``--out``, and replay sets for training into the
folder of ``--demonstrations``, if given.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import MISSING, asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Any

from nppsim.cluster import EXECUTION_SETTINGS, Workers
from nppsim.errors import ConfigError
from nppsim.executor import open_executor
from nppsim.files import check_output_folder, locked, new_folder, replacing, table, write_json
from nppsim.levels.level import MODELLED, UNSUPPORTED, left_out, warning_lines
from nppsim.levels.level_set import LevelSetError
from nppsim.pictures import render
from nppsim.pictures.film import record
from nppsim.pictures.schemes import painted
from nppsim.planner import gold_in_level
from nppsim.planner.settings import TIME
from nppsim.progress import progress_bar
from nppsim.replays.diff import compare_replays, difference_text
from nppsim.replays.replay import Replay
from nppsim.replays.replay_set import ReplayWriter
from nppsim.replays.score import score, seconds
from nppsim.report.pages import check_packages, render_page, write_page
from nppsim.settings import Parser, check_settings, same_setting, setting
from nppsim.simulate import simulate
from nppsim.workers import usable_cores
from rl import plugins
from rl.config import ExperimentConfig, VideoConfig
from rl.policy.player import Shipped
from rl.search.guided_search import Agent
from rl.search.levels import Task, read_tasks
from rl.search.solve import Interrupted, Solution, SolveSettings, solve

SOURCE = "solve"  # "source" in the metadata of demonstrations
REPLAYS, FILMS, ROUTES = "replays", "films", "routes"  # sub-folders of --out


@dataclass(frozen=True)
class Solved:
    """A level with its solution."""

    task: Task
    solution: Solution
    stem: str  # file name of the output files, without suffix

    @property
    def frames(self) -> int | None:
        """Length of the run in frames, or None."""
        return None if self.solution.run is None else self.solution.run.frames

    @property
    def gold(self) -> int | None:
        """Pieces of gold that the run collects, or None."""
        return None if self.solution.run is None else self.solution.run.gold

    @property
    def gold_in_level(self) -> int:
        """Pieces of gold in the level."""
        return gold_in_level(self.task.level)

    @property
    def score(self) -> float | None:
        """Score of the run in the game, or None."""
        return None if self.frames is None or self.gold is None else score(self.frames, self.gold)

    @property
    def fraction_of_par(self) -> float | None:
        """Length of the run divided by par, or None."""
        return None if self.frames is None or not self.task.par_frames else self.frames / self.task.par_frames

    @property
    def replay(self) -> Replay:
        """The run as a replay."""
        assert self.solution.run is not None
        return Replay(self.task.level, self.solution.run.inputs, success=True, name=self.task.name)

    def entry(self) -> dict[str, Any]:
        """Return the entry of the level in ``results.json``."""
        known = asdict(self.solution)
        del known["run"]
        task = self.task
        about: dict[str, Any] = {"level": task.name}
        about |= {"id": task.level.id, "title": task.level.title.strip(), "category": task.category}
        about |= {"support": task.level.support, "frames": self.frames, "par_frames": task.par_frames}
        about |= {"time": None if self.frames is None else seconds(self.frames), "gold": self.gold}
        about |= {"gold_in_level": self.gold_in_level, "score": self.score}
        return about | {"recorded_frames": task.recorded_frames} | known


@dataclass(frozen=True)
class Job:
    """Settings of the command, except for the settings of the search."""

    level: Path
    agent: Path = setting(MISSING, "checkpoint of the agent", flag="agent", metavar="CHECKPOINT")
    against: Path | None = setting(None, "replay of a single LEVEL to compare with", flag="against", metavar="REPLAY")
    out: Path = setting(Path("solved"), "new folder for runs, videos and report", flag="out", aliases=("output-dir",))
    demonstrations: Path | None = setting(
        None,
        "also write the runs to this new folder for training, as CATEGORY.h5",
        flag="demonstrations",
        metavar="DIR",
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


def run(job: Job, settings: SolveSettings) -> int:
    """Solve levels, write and print the results; return 1 if a level was not solved, else 0.

    If ``job.out`` is not empty, a new folder ``solved_2``, ``solved_3``, ... is used.  On Ctrl-C, the runs found so far are
    saved.
    """
    agent, tasks = _prepare(job)
    for note in warning_lines(task.level for task in tasks):
        print(note)
    if _has_files(job.out):
        job = replace(job, out=new_folder(job.out))
    solved: list[Solved] = []
    with locked(job.out) as check:
        try:
            with _demonstrations(job.demonstrations) as demonstrate:
                stems: set[str] = set()
                for task, solution in _solutions(job, settings, agent, tasks):
                    check()
                    one = Solved(task, solution, file_stem(_file_name(task, solution), stems))
                    solved.append(one)
                    if solution.run is not None:
                        save_run(one, job.out)
                        demonstrate(one)
        except KeyboardInterrupt:
            where = f"; runs found so far are in {job.out}" if any(one.solution.run for one in solved) else ""
            raise KeyboardInterrupt(f"{len(solved)} of {len(tasks)} levels were searched{where}") from None
        print(summary_text(solved))
        check()
        _write_report(job, settings, solved)
    return int(any(one.solution.run is None for one in solved))


def _prepare(job: Job) -> tuple[Shipped, list[Task]]:
    """Check that packages are installed and output folders usable; load the agent and the levels."""
    check_packages()
    VideoConfig(record_eval_videos=job.films > 0).check_packages()
    check_output_folder(job.out, "--out")
    if job.demonstrations is not None:
        check_output_folder(job.demonstrations, "--demonstrations")
        if job.demonstrations.resolve() == job.out.resolve():
            raise ConfigError("is the folder of --out; give another folder", "--demonstrations", job.demonstrations)
        if _has_files(job.demonstrations):
            raise ConfigError("is not empty; give a new folder", "--demonstrations", job.demonstrations)
    plugins.load(job.plugins)
    agent = Shipped.of(Agent.load(job.agent), job.plugins)
    tasks = _supported(read_tasks(job.level, job.against), job.allow_unsupported)
    if job.cluster and len(tasks) == 1:
        raise ConfigError("is only for several levels; leave it out", "--cluster", job.cluster)
    return agent, tasks


def _supported(tasks: list[Task], allow_unsupported: bool) -> list[Task]:
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


def _solve_one(agent: Shipped, settings: SolveSettings, task: Task) -> Solution:
    return solve(task.level, agent.unpack(), settings, threads=1)


def _solutions(
    job: Job, settings: SolveSettings, agent: Shipped, tasks: Sequence[Task]
) -> Iterator[tuple[Task, Solution]]:
    """Yield each level with its solution.  A single level is searched with all cores, several levels on one core each.

    With a single level, the best solution so far is yielded on Ctrl-C.
    """
    if len(tasks) == 1:
        with progress_bar(title="searching", total=settings.budget, unit="frame") as bar:
            try:
                solution = solve(tasks[0].level, agent.unpack(), settings, bar=bar)
            except Interrupted as interruption:
                yield tasks[0], interruption.solution
                raise
            yield tasks[0], solution
        return
    solve_one = partial(_solve_one, agent, settings)
    with (
        progress_bar(title="solving", total=len(tasks), unit="level") as bar,
        open_executor(min(job.workers or usable_cores(), len(tasks)), ConfigError, job.cluster) as executor,
        executor.map(solve_one, tasks) as found,
    ):
        for task, solution in zip(tasks, found, strict=True):
            bar.update()
            yield task, solution


@contextmanager
def _demonstrations(folder: Path | None) -> Iterator[Any]:
    """Yield a function that adds a run to the replay set of its category; the sets are written at the end of the block."""
    with ExitStack() as stack:
        writers: dict[str, ReplayWriter] = {}
        if folder is not None:
            stack.enter_context(locked(folder))

        def demonstrate(one: Solved) -> None:
            if folder is None:
                return
            category = one.task.category
            if category not in writers:
                writers[category] = stack.enter_context(ReplayWriter(folder / f"{category}.h5"))
            about = {"source": SOURCE, "found_by": one.solution.found_by, "par_frames": one.task.par_frames}
            writers[category].append(one.replay, category=category, **about)

        yield demonstrate


def _write_report(job: Job, settings: SolveSettings, solved: Sequence[Solved]) -> None:
    filmed: list[dict[str, Any]] = []
    for one in solved:
        if one.frames is not None and sum(shown["category"] == one.task.category for shown in filmed) < job.films:
            with painted(job.video_colours):
                filmed.append(film(one, job.out, job.video_fps))
    used = {name: value for name, value in (asdict(job) | asdict(settings)).items() if name not in EXECUTION_SETTINGS}
    shown = {name: str(value) if isinstance(value, Path) else value for name, value in used.items()}
    write_json(job.out / "results.json", {"settings": used, "levels": [one.entry() for one in solved]})
    title = f"{job.level.name}: search with {job.agent.name}"
    page = render_page(
        "solve.html", title=title, summary=summary(solved), rows=rows(solved), films=filmed, settings=shown
    )
    write_page(page, job.out / "report.html")
    print(f"runs: {job.out / REPLAYS}; page: {job.out / 'report.html'}")


# ---------------------------------------------------------------------------------------------------------------------
# Results


def _file_name(task: Task, solution: Solution) -> str:
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


def rows(solved: Iterable[Solved]) -> list[dict[str, Any]]:
    """Return the rows of the result table, one per level."""
    return [
        {
            "level": one.task.caption,
            "support": one.task.level.support,
            "time, s": None if one.frames is None else f"{seconds(one.frames):.3f}",
            "score": None if one.score is None else f"{one.score:.3f}",
            "gold": None if one.gold is None else f"{one.gold} of {one.gold_in_level}",
            "frames": one.frames,
            "par": one.task.par_frames,
            "of par": None if one.fraction_of_par is None else f"{one.fraction_of_par:.2f}",
            "recorded": one.task.recorded_frames,
            "found by": one.solution.found_by or "not found",
            "simulated to find": one.solution.finding,
            "to shorten": one.solution.shortening,
            **({} if one.solution.objective == TIME else {"for gold": one.solution.collecting}),
        }
        for one in solved
    ]


def summary(solved: Sequence[Solved]) -> list[str]:
    """Return the results as sentences."""
    won = [one for one in solved if one.frames is not None]
    finders = Counter(one.solution.found_by for one in won)
    lines = [f"solved {len(won)} of {len(solved)}" + (f": {_counts(finders)}" if won else "")]
    objective = solved[0].solution.objective
    if objective != TIME and won:
        lines.append(_gold_sentence(objective, won))
    modelled = sum(one.task.level.support == MODELLED for one in won)
    if modelled:
        lines.append(f"{modelled} of {len(won)} runs are on modelled levels: they may end differently in the game")
    ratios = [one.fraction_of_par for one in won if one.fraction_of_par is not None]
    if ratios and objective == TIME:
        within = sum(ratio <= 1 for ratio in ratios)
        lines.append(f"length / par: median {median(ratios):.3f}; at most par on {within} of {len(ratios)} levels")
    beaten = [one.frames < one.task.recorded_frames for one in won if one.frames and one.task.recorded_frames]
    if beaten and objective == TIME:
        lines.append(f"faster than the recording on {sum(beaten)} of {len(beaten)} levels")
    finding, shortening, evaluated, foreseen = (
        mean(getattr(one.solution, name) for one in solved)
        for name in ("finding", "shortening", "evaluated", "foreseen")
    )
    lines.append(
        f"per level: {finding:,.0f} frames simulated to find a run, {shortening:,.0f} to shorten it; {evaluated:,.0f} states "
        "evaluated by the agent" + (f", with up to {foreseen:,.0f} frames simulated for foresight" if foreseen else "")
    )
    return lines


def _gold_sentence(objective: str, won: Sequence[Solved]) -> str:
    collected, existing = (sum(getattr(one, name) for one in won) for name in ("gold", "gold_in_level"))
    complete = sum(one.gold == one.gold_in_level for one in won)
    return (
        f"objective {objective}: {collected} of {existing} pieces of gold, all of them on {complete} of {len(won)} levels; "
        f"mean score {mean(one.score or 0.0 for one in won):.3f}"
    )


def _counts(finders: Counter[str]) -> str:
    return ", ".join(f"{count} by {finder}" for finder, count in finders.most_common())


def summary_text(solved: Sequence[Solved]) -> str:
    """Format table and summary, and for a single level the comparison of its run with the recording."""
    found = rows(solved)
    shown = [[f"{value:,}" if isinstance(value, int) else "-" if value is None else value for value in row.values()]
             for row in found]  # fmt: skip
    parts = [table(list(found[0]), shown, "llrrrrrrrlrrr"[: len(found[0])]), "", *summary(solved)]
    if len(solved) == 1 and solved[0].frames is not None and solved[0].task.recorded is not None:
        difference, *_ = compare_replays(solved[0].task.recorded, solved[0].replay)
        parts += ["", "A is the recording, B the run found", difference_text(difference)]
    return "\n".join(parts)


def save_run(one: Solved, folder: Path) -> None:
    """Save the run as a compact replay and as an attract file."""
    one.replay.save(folder / REPLAYS / f"{one.stem}.replay")
    attract = Replay(one.task.level, one.replay.inputs, name=one.task.name)  # attract files do not store success
    attract.save(folder / REPLAYS / f"{one.stem}.attract", format="attract")


def film(one: Solved, folder: Path, fps: int) -> dict[str, Any]:
    """Record a video and draw the route of a run, and of the recording; return the entry of the report."""
    level, replay, name = one.task.level, one.replay, one.task.caption
    run = simulate(level, replay.inputs)
    if one.task.recorded is None:
        picture = render.draw_route(level, run, crop=True, title=name)
    else:
        both = (simulate(level, one.task.recorded.inputs), run)
        picture = render.draw_two_routes(level, both, ("recording", "found"))
    with replacing(folder / ROUTES / f"{one.stem}.png") as temporary:
        picture.save(temporary, format="PNG")
    video = f"{FILMS}/{one.stem}.mp4"
    look = render.FilmLook(fps=fps, title=name, category=one.task.category)
    record(folder / video, level, replay.inputs, look, run=run)
    png = (folder / ROUTES / f"{one.stem}.png").read_bytes()
    return {"name": name, "category": one.task.category, "frames": one.frames, "link": video, "poster": png}


def parse(argv: Sequence[str]) -> tuple[Job, SolveSettings]:
    """Parse the command line."""
    parser = Parser(
        prog="solve.py",
        description="Find runs that finish a level, or each level of a folder, and shorten them, guided by a trained agent.",
    )
    parser.add_argument(
        "level", type=Path, metavar="LEVEL", help="level file, replay or attract file, or a folder of levels or replays"
    )
    parser.add_settings(Job)
    parser.add_settings(SolveSettings)
    arguments = parser.parse_args(argv)
    return parser.build(Job, arguments, level=arguments.level), parser.build(SolveSettings, arguments)
