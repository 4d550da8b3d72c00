"""Results of ``solve``: table, summary, and files (runs, videos, page)."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

from nppsim.files import replacing, table
from nppsim.pictures import render
from nppsim.pictures.film import record
from nppsim.replays.diff import compare_replays, difference_text
from nppsim.replays.replay import Replay
from nppsim.report.pages import render_page
from nppsim.simulate import simulate
from rl.search.levels import Task
from rl.search.solve import Solution

REPLAYS, FILMS, ROUTES = "replays", "films", "routes"  # folders of the files


@dataclass(frozen=True)
class Solved:
    """A level with its solution.  stem: name of its files, without folder and suffix."""

    task: Task
    solution: Solution
    stem: str

    @property
    def frames(self) -> int | None:
        """Length of the run, or None."""
        return None if self.solution.run is None else self.solution.run.frames

    @property
    def of_par(self) -> float | None:
        """Length of the run divided by par, or None."""
        return None if self.frames is None or not self.task.par_frames else self.frames / self.task.par_frames

    @property
    def replay(self) -> Replay:
        """The run."""
        assert self.solution.run is not None
        return Replay(self.task.level, self.solution.run.inputs, success=True, name=self.task.name)

    def facts(self) -> dict[str, Any]:
        """Entry of the results file."""
        known = asdict(self.solution)
        del known["run"]
        task = self.task
        about = {"level": task.name, "category": task.category, "frames": self.frames, "par_frames": task.par_frames}
        return about | {"recorded_frames": task.recorded_frames} | known


def file_stem(name: str, used: set[str]) -> str:
    """Choose an unused name for the files of a level, and add it to ``used``."""
    plain = re.sub(r"\W+", "_", re.sub(r"\.(map|replay|h5)\b", "", name)).strip("_") or "level"
    stem = next(stem for stem in (plain, *(f"{plain}_{i}" for i in range(2, len(used) + 3))) if stem not in used)
    used.add(stem)
    return stem


def rows(solved: Iterable[Solved]) -> list[dict[str, Any]]:
    """A row per level."""
    return [
        {
            "level": one.task.name,
            "frames": one.frames,
            "par": one.task.par_frames,
            "of par": None if one.of_par is None else f"{one.of_par:.2f}",
            "recorded": one.task.recorded_frames,
            "found by": one.solution.found_by or "not found",
            "simulated to find": one.solution.finding,
            "to shorten": one.solution.shortening,
        }
        for one in solved
    ]


def summary(solved: Sequence[Solved]) -> list[str]:
    """Results as sentences."""
    won = [one for one in solved if one.frames is not None]
    finders = Counter(one.solution.found_by for one in won)
    lines = [f"solved {len(won)} of {len(solved)}" + (f": {_counts(finders)}" if won else "")]
    ratios = [one.of_par for one in won if one.of_par is not None]
    if ratios:
        within = sum(ratio <= 1 for ratio in ratios)
        lines.append(f"length in pars: median {median(ratios):.3f}; par or less on {within} of {len(ratios)}")
    beaten = [one.frames < one.task.recorded_frames for one in won if one.frames and one.task.recorded_frames]
    if beaten:
        lines.append(f"faster than the recording: {sum(beaten)} of {len(beaten)}")
    finding, shortening, evaluated, foreseen = (
        mean(getattr(one.solution, name) for one in solved)
        for name in ("finding", "shortening", "evaluated", "foreseen")
    )
    lines.append(
        f"per level: {finding:,.0f} frames simulated to find a run, {shortening:,.0f} to shorten it; {evaluated:,.0f} states "
        "evaluated by the agent" + (f", with up to {foreseen:,.0f} frames simulated for foresight" if foreseen else "")
    )
    return lines


def _counts(finders: Counter[str]) -> str:
    return ", ".join(f"{count} by {finder}" for finder, count in finders.most_common())


def text(solved: Sequence[Solved]) -> str:
    """Table and summary, and for a single level the difference between its run and the recording."""
    found = rows(solved)
    shown = [[f"{value:,}" if isinstance(value, int) else "-" if value is None else value for value in row.values()]
             for row in found]  # fmt: skip
    parts = [table(list(found[0]), shown, "lrrrrlrr"), "", *summary(solved)]
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
    """Render a video and the route of the run, beside the recording's; return the entry of the page."""
    level, replay, name = one.task.level, one.replay, one.task.name
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


def page(solved: Sequence[Solved], films: Sequence[Mapping[str, Any]], title: str, settings: Mapping[str, Any]) -> str:
    """The page as text."""
    return render_page(
        "solve.html", title=title, told=summary(solved), rows=rows(solved), films=films, settings=settings
    )
