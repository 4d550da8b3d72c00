"""Whether an experiment's files tell of the episodes that were judged: they are read back, and every figure is counted again.

check_written(record, folder)      # after rl.experiment.record.write
"""

import csv
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nppsim.reading import read_json
from rl.evaluation.comparison import LEVELS_FILE
from rl.evaluation.results import ALL, EpisodeRecord, ResultsError, load_results
from rl.evaluation.verify import check_counts
from rl.experiment.report import METHODS

if TYPE_CHECKING:
    from rl.experiment.record import ExperimentRecord, RunRecord

_REPORT = "please report this"
_REMEDY = f"it was written a moment ago: {_REPORT}"
_NAMED = {words: method for method, words in METHODS.items()}  # in the names of what is compared
_EXACT = 1e-9
Played = Mapping[str, Sequence[EpisodeRecord]]  # method -> episodes


def check_written(record: "ExperimentRecord", folder: Path) -> None:
    """ResultsError unless the files in an experiment's folder say of each run, and of all seeds, what its episodes say."""
    results, shown = load_results(folder / "results.json"), _read(folder / "experiment.json")
    for run in record.runs:
        where = f"results.json, {run.title}"
        entry = results["architectures"][run.label]["seeds"][str(run.seed)]
        told = {f"{where}: ": _by_method(entry)}
        told[f"{run.folder / 'eval_results.json'}: "] = _read(run.folder / "eval_results.json")
        told[f"experiment.json, {run.title}: "] = shown["architectures"][run.title]["results"]
        for place, tables in told.items():
            _check_tables(tables, run.played, place)
        _check_levels(run)
        for one in entry["comparisons"]:
            _check_comparison(one, run.played, where)
    for label, runs in record.groups.items():
        if len(runs) > 1:
            of_all = {method: [e for run in runs for e in run.played[method]] for method in runs[0].played}
            told = {"results.json": _by_method(results["architectures"][label]["all_seeds"])}
            told["experiment.json"] = shown["all_seeds"][f"{label}, all seeds"]
            for place, tables in told.items():
                _check_tables(tables, of_all, f"{place}, {label}, all seeds: ")
    for one in results["comparisons"]:
        _check_between(one, record)
    _check_page(record, folder / "report.html")


class _Tables(HTMLParser):
    """The tables of class "results" in a page: rows of cells, each its first word and the number of columns that it spans."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: list[list[list[list]]] = []
        self._open = self._cell = False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        named = dict(attributes)
        if tag == "table":
            self._open = named.get("class") == "results"
            self.tables += [[]] if self._open else []
        elif self._open and tag == "tr":
            self.tables[-1].append([])
        elif self._open and tag in ("th", "td"):
            self.tables[-1][-1].append(["", int(named.get("colspan") or 1)])
            self._cell = True
        elif tag in ("span", "small", "div"):
            self._cell = False  # what follows the figure

    def handle_endtag(self, tag: str) -> None:
        self._open = self._open and tag != "table"
        self._cell = self._cell and tag not in ("th", "td")

    def handle_data(self, data: str) -> None:
        if self._open and self._cell:
            self.tables[-1][-1][-1][0] += data.strip()


def _check_page(record: "ExperimentRecord", path: Path) -> None:
    """ResultsError unless the report's first table shows the success of each run's methods over all levels."""
    played = {run.title: run.played for run in record.runs if any(run.played.values())}
    if not played:
        return
    page = _Tables()
    page.feed(path.read_text(encoding="utf-8"))
    if not page.tables:
        raise ResultsError(f"{path}: has no table of results: {_REPORT}")
    (_, *groups), (_, *titles), *rows = page.tables[0]
    runs = [name for name, span in groups for _ in range(span)]
    found = {
        (run, _NAMED.get(title, title)): shown
        for run, (title, _), (shown, _) in zip(runs, titles, rows[-1][1:], strict=True)
        if shown != "not run"
    }
    wanted = {
        (run if (run, method) in found else "", method): f"{100 * _success(episodes, ALL):.1f} %"
        for run, methods in played.items()
        for method, episodes in methods.items()
        if episodes
    }
    if found != wanted:
        wrong = next(place for place in [*found, *wanted] if found.get(place) != wanted.get(place))
        raise ResultsError(
            f"{path}: shows {found.get(wrong)} for {wrong[1]} of {wrong[0]!r}, counted are {wanted.get(wrong)}: {_REPORT}"
        )


def _read(path: Path) -> Any:
    return read_json(path, ResultsError, _REMEDY)


def _by_method(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {"ppo": entry["suites"]["test"], **entry["baselines"]}


def _check_tables(tables: Mapping[str, Any], played: Played, place: str) -> None:
    for method, episodes in played.items():
        if episodes:
            check_counts(episodes, tables[method] or {}, f"{place}{method}, ")
        elif tables[method]:
            raise ResultsError(f"{place}there are figures of {method}, which was not played: {_REPORT}")


def _check_levels(run: "RunRecord") -> None:
    """ResultsError unless the table of wins on each level is of these episodes."""
    played = {method: episodes for method, episodes in run.played.items() if episodes}
    if not played:
        return
    path = run.folder / LEVELS_FILE
    with open(path, encoding="utf-8", newline="") as file:
        rows = {row["level"]: row for row in csv.DictReader(file)}
    for method, episodes in played.items():
        counts: dict[str, list[int]] = {}
        for episode in episodes:
            count = counts.setdefault(episode.level.fingerprint, [0, 0])
            count[0] += 1
            count[1] += episode.won
        told = {level: [int(row["episodes"]), int(row[method])] for level, row in rows.items()}
        if told != counts:
            raise ResultsError(f"{path}: wins of {method} on the levels are not those of its episodes: {_REPORT}")


def _check_comparison(told: Mapping[str, Any], played: Played, where: str) -> None:
    """ResultsError unless two methods of the same runs are compared as their episodes say.  Names end with methods."""
    sides: list[Sequence[EpisodeRecord]] = []
    for name in (told["first"], told["second"]):
        method = next((method for words, method in _NAMED.items() if name.endswith(words)), None)
        if method is None or not played.get(method):
            raise ResultsError(f"{where}: {name!r} is compared, which was not played: {_REPORT}")
        sides.append(played[method])
    first, second = sides
    _check_difference(told, first, second, where)


def _check_difference(
    told: Mapping[str, Any], first: Sequence[EpisodeRecord], second: Sequence[EpisodeRecord], where: str
) -> None:
    for category, row in told["categories"].items():
        one, other = (_success(episodes, category) for episodes in (first, second))
        wanted = {"first": one, "second": other, "difference": one - other}
        low, high = row["ci95"] or (one - other, one - other)
        right = all(abs(row[name] - value) < _EXACT for name, value in wanted.items())
        if not (right and low - _EXACT <= one - other <= high + _EXACT):
            raise ResultsError(
                f"{where}: {told['first']} against {told['second']}, {category}: told are {row['first']:.4f} and "
                f"{row['second']:.4f}, a difference of {row['difference']:+.4f} ({low:+.4f} to {high:+.4f}); again it "
                f"is {one:.4f} and {other:.4f}: {_REPORT}"
            )
    more = told["categories"][ALL]["difference"] > 0
    claims = {" more than ": more, " LESS than ": not more}
    if wrong := [words for words, true in claims.items() if words in told["sentence"] and not true]:
        raise ResultsError(f"{where}: {told['sentence']!r} says{wrong[0]}where figures say the opposite: {_REPORT}")


def _check_between(told: Mapping[str, Any], record: "ExperimentRecord") -> None:
    """The same of seeds of one label, or of labels after PPO, over the seeds that both have finished."""
    groups, where = record.groups, "results.json, comparisons"
    if told["second"] in _NAMED:
        runs = groups[told["first"].removesuffix(f" {METHODS['ppo']}")]
        played = {method: [e for run in runs for e in run.played[method]] for method in runs[0].played}
        _check_comparison(told, played, where)
        return
    sides = [{run.seed: run for run in groups[told[side]] if run.played["ppo"]} for side in ("first", "second")]
    shared = sorted(sides[0].keys() & sides[1].keys())
    first, second = ([e for seed in shared for e in side[seed].played["ppo"]] for side in sides)
    _check_difference(told, first, second, where)


def _success(episodes: Sequence[EpisodeRecord], category: str) -> float:
    outcomes = [episode.won for episode in episodes if category in (episode.category, ALL)]
    return sum(outcomes) / len(outcomes)
