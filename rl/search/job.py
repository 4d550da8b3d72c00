"""Command ``scripts/solve.py``: solve levels and write the results.

    run(*parse(argv))

Writes runs, videos, ``results.json`` and ``report.html`` into ``--out``, and with --demonstrations replay sets for training.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import MISSING, asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from nppsim.cluster import HOW, Workers, check_cluster
from nppsim.errors import ConfigError
from nppsim.executor import open_executor
from nppsim.files import check_output_folder, new_folder, write_json
from nppsim.levels.level import oddities
from nppsim.lock import locked
from nppsim.progress import progress_bar
from nppsim.replays.replay_set import ReplayWriter
from nppsim.report.pages import check_packages, write_page
from nppsim.settings import Parser, check_settings, same_setting, setting
from nppsim.workers import usable_cores
from rl.config import ExperimentConfig, VideoConfig, plugins
from rl.config.shipped import Shipped
from rl.search import results
from rl.search.guided_search import Agent
from rl.search.levels import Task, read_tasks
from rl.search.proof import check_files, check_found
from rl.search.results import Solved
from rl.search.solve import Interrupted, Solution, SolveSettings, solve

SOURCE = "solve"  # of a demonstration, in its metadata


@dataclass(frozen=True)
class Job:
    """Settings of the command, without those of the search."""

    level: Path
    agent: Path = setting(MISSING, "file written by training", flag="agent", metavar="CHECKPOINT")
    against: Path | None = setting(None, "recording of the level to compare with", flag="against", metavar="REPLAY")
    out: Path = setting(Path("solved"), "new folder for runs, films and the page", flag="out", aliases=("output-dir",))
    demonstrations: Path | None = setting(
        None, "new folder for the runs as replay sets, CATEGORY.h5, to train on", flag="demonstrations", metavar="DIR"
    )
    films: int = setting(1, "films of each category, at most", flag="films", low=0)
    video_fps: int = same_setting(VideoConfig, "video_fps", needs="")
    workers: int | None = same_setting(Workers, "workers")
    cluster: str | None = same_setting(Workers, "cluster")
    plugins: tuple[str, ...] = same_setting(ExperimentConfig, "plugins")
    debug: bool = same_setting(ExperimentConfig, "debug")

    def __post_init__(self) -> None:
        check_settings(self)
        check_cluster(self.cluster, self.workers)


def run(job: Job, settings: SolveSettings) -> int:
    """Solve, write and print; return 1 if a level was not solved.  An interruption saves the runs found so far.

    If ``job.out`` is not empty, a new folder ``solved_2`` and so on is used.
    """
    agent, tasks = _checked(job)
    for odd in oddities(task.level for task in tasks):
        print(odd)
    if _has_files(job.out):
        job = replace(job, out=new_folder(job.out))
    solved: list[Solved] = []
    with locked(job.out) as check:
        try:
            with _demonstrations(job.demonstrations) as demonstrate:
                stems: set[str] = set()
                for task, solution in _solutions(job, settings, agent, tasks):
                    check()
                    one = Solved(task, solution, results.file_stem(task.name, stems))
                    solved.append(one)
                    if solution.run is not None:
                        results.save_run(one, job.out)
                        demonstrate(one)
        except KeyboardInterrupt:
            where = f"; the runs found are in {job.out}" if any(one.solution.run for one in solved) else ""
            raise KeyboardInterrupt(f"{len(solved)} of {len(tasks)} levels were searched{where}") from None
        check_found(solved, tasks, job.level)
        check_files(solved, job.out, job.demonstrations)
        print(results.text(solved))
        check()
        _write_report(job, settings, solved)
    return int(any(one.solution.run is None for one in solved))


def _checked(job: Job) -> tuple[Shipped, list[Task]]:
    """Check packages and folders; load the agent and the levels."""
    check_packages()
    VideoConfig(record_eval_videos=job.films > 0).check_packages()
    check_output_folder(job.out, "--out")
    if job.demonstrations is not None:
        check_output_folder(job.demonstrations, "--demonstrations")
        if job.demonstrations.resolve() == job.out.resolve():
            raise ConfigError("is the folder of --out; give one of its own", "--demonstrations", job.demonstrations)
        if _has_files(job.demonstrations):
            raise ConfigError("is not empty; give a new folder", "--demonstrations", job.demonstrations)
    plugins.load(job.plugins)
    agent = Shipped.of(Agent.load(job.agent), job.plugins)
    tasks = read_tasks(job.level, job.against)
    if job.cluster and len(tasks) == 1:
        raise ConfigError("one level is searched on this machine; leave it out", "--cluster", job.cluster)
    return agent, tasks


def _has_files(folder: Path) -> bool:
    return folder.exists() and any(file.name[0] != "." for file in folder.iterdir())


def _solve_one(agent: Shipped, settings: SolveSettings, task: Task) -> Solution:
    return solve(task.level, agent.unpack(), settings, threads=1)


def _solutions(
    job: Job, settings: SolveSettings, agent: Shipped, tasks: Sequence[Task]
) -> Iterator[tuple[Task, Solution]]:
    """Yield each level with its solution: a single level uses all cores, several use one process each.

    With a single level, Ctrl-C yields the best solution so far.
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
    """Function that adds a run to the replay set of its category; all sets are written at the end, also after errors."""
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
            filmed.append(results.film(one, job.out, job.video_fps))
    facts = {name: value for name, value in (asdict(job) | asdict(settings)).items() if name not in HOW}
    shown = {name: str(value) if isinstance(value, Path) else value for name, value in facts.items()}
    write_json(job.out / "results.json", {"settings": facts, "levels": [one.facts() for one in solved]})
    write_page(
        results.page(solved, filmed, f"{job.level.name}: search with {job.agent.name}", shown), job.out / "report.html"
    )
    print(f"runs: {job.out / results.REPLAYS}; page: {job.out / 'report.html'}")


def parse(argv: Sequence[str]) -> tuple[Job, SolveSettings]:
    """Parse the command line."""
    parser = Parser(
        prog="solve.py",
        description="Search on top of an agent: finish a level, or each of a folder, and find shorter runs.",
    )
    parser.add_argument(
        "level", type=Path, metavar="LEVEL", help="level file, replay or attract file, or a folder of levels or replays"
    )
    parser.add_settings(Job)
    parser.add_settings(SolveSettings)
    arguments = parser.parse_args(argv)
    return parser.build(Job, arguments, level=arguments.level), parser.build(SolveSettings, arguments)
