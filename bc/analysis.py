"""Statistics of a folder of demonstrations, and problems found in it; ``bc.demonstration_report`` writes the page.

    analysis = analyse(find_replays(folder), 4, folder=folder, levels=[LevelSet.open("datasets/train")])
    analysis.findings  # what to check before training, as sentences

States are the observations before each decision, from the simulator used for training (``bc.dataset``).
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np

from bc.baselines import Metrics, predictors, previous_actions, score, transition_counts
from bc.dataset import DatasetConfig, record, with_bank
from bc.demonstrations import Demonstration, DemonstrationSet, ReplayFile, load_demonstrations
from nppsim.actions import ACTION_NAMES, LEFT, MIRRORED_ACTION, RIGHT
from nppsim.bank import LevelBank
from nppsim.levels.level import Level, mirror, symmetric_fingerprint
from nppsim.levels.level_set import LevelEntry, LevelSet
from nppsim.levels.stage import CELLS_X, CELLS_Y, NUM_CELLS, TILE
from nppsim.observe import layout
from nppsim.paths import MAX_PATH, NODES_X, NODES_Y, WALL

STATE = "game_state"
# Thresholds of anomalies.
IDLE_FRAMES = 60  # without moving
IDLE_PX = 0.05  # per decision; less is no movement
SLOW = 2.0  # times par, or times the fastest demonstration of the same level
SLOW_PATH = 3.0  # times the median of frames per px of path; does not need par
LONG_FOR_CATEGORY = 5.0  # times the median of the category
LARGE_DEVIATION_PX = 10.0  # mean distance of a re-timed run from its recording: the radius of the ninja
NEARLY_CONSTANT = 0.999  # share of decisions with the same value

FASTEST = 10  # px per frame: largest value of the histogram of speeds
_WAVE = 512  # demonstrations stepped together

# Kinds of anomalies besides the reasons for excluding a replay.
IDLE = "idle interval"
SLOWER_THAN_PAR = "much longer than par"
SLOWER_THAN_OTHERS = "much longer than another one"
SLOW_FOR_ITS_PATH = "slow for its path"
LONG_FOR_ITS_CATEGORY = "much longer than its category"
RETIMED_FAR = "re-timed with a large deviation"
NOT_IN_LEVELS = "level not in --levels"
OTHER_CATEGORY = "another category in --levels"
AFTER_WIN = "inputs after the win"
BOTH_HELD = "left and right pressed together"
DEFECT = "tolerated defect of the file"

_Key = TypeVar("_Key", bound=Hashable)
_Item = TypeVar("_Item")
Progress = Callable[[Iterable, str], Iterable]  # wraps an iterable, given its title


@dataclass(frozen=True)
class Anomaly:
    """An unusual replay.  value: frames, px or ratio, depending on the kind; None if there is no number."""

    name: str
    value: float | None
    detail: str


@dataclass(frozen=True)
class Finding:
    """A sentence about the demonstrations.  problem: would invalidate training."""

    problem: bool
    text: str


@dataclass(frozen=True, eq=False)
class Group:
    """Statistics of D demonstrations, of one category or all.

    lengths: int64[D], decisions.
    transitions: int64[6, 6], action (column) after the previous one (row; no-op before the first).
    holds: int64, decisions of each interval with one action (the last one of a demonstration ends with the win).
    baselines: trivial predictors, fitted to all demonstrations of the folder, evaluated on these.
    states: share of the decisions in each state of the ninja.
    airborne: share of the decisions.
    positions: int64[25, 44], decisions per tile of the stage.
    speeds: int64[41, 41], decisions by vy (row) and vx (column), -10 to 10 px per frame in halves.
    visited: float64[levels], share of the reachable tiles of each level that its demonstrations visit.
    """

    lengths: np.ndarray
    transitions: np.ndarray
    holds: np.ndarray
    baselines: dict[str, Metrics]
    states: dict[str, float]
    airborne: float
    positions: np.ndarray
    speeds: np.ndarray
    visited: np.ndarray

    @property
    def actions(self) -> np.ndarray:
        """Counts int64[6] of the actions."""
        return self.transitions.sum(axis=0)


@dataclass(frozen=True)
class Component:
    """Statistics of one number of the observation ``state``, raw units.  common: share of its most frequent value."""

    name: str
    low: float
    mean: float
    high: float
    spread: float
    common: float

    @property
    def constant(self) -> bool:
        return self.low == self.high


@dataclass(frozen=True, eq=False)
class Analysis:
    """Result of ``analyse`` for D demonstrations.

    found: the demonstrations, and the excluded replays.
    total, groups: all demonstrations, and by category.
    components: of the observation ``state``.
    frames: int64[D].
    par: float64[D], frames of par in the level sets; NaN if unknown.
    coverage: category of the level sets -> bool[L], levels with a demonstration, a mirror image counting as the same; empty
        without level sets.
    several: names of the demonstrations of each level that has more than one.
    mirrored: names of the demonstrations of each level that occurs together with its mirror image.
    same_mirrored: number of pairs of demonstrations that are mirror images, level and actions.
    leaks: demonstrations of held-out levels.
    anomalies: by kind, the most extreme first.
    """

    found: DemonstrationSet
    total: Group
    groups: dict[str, Group]
    components: tuple[Component, ...]
    frames: np.ndarray
    par: np.ndarray
    coverage: dict[str, np.ndarray]
    several: tuple[tuple[str, ...], ...]
    mirrored: tuple[tuple[str, ...], ...]
    same_mirrored: int
    leaks: tuple[Anomaly, ...]
    anomalies: dict[str, tuple[Anomaly, ...]]

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """Findings as sentences, problems first."""
        return tuple(_findings(self))


def analyse(
    files: Sequence[ReplayFile],
    frame_skip: int,
    *,
    folder: str = "",
    levels: Sequence[LevelSet] = (),
    held_out: Sequence[LevelSet] = (),
    progress: Progress = lambda items, title: items,
) -> Analysis:
    """Play back the demonstrations and compute their statistics.

    levels: training levels to compare with.
    held_out: levels without demonstrations, e.g. for tests.
    progress: wraps iterables, given their title.
    Raises DemonstrationError without usable replays, LevelSetError for an unreadable level, DatasetError.
    """
    known = _known_levels(levels, "levels", progress)
    forbidden = _known_levels(held_out, "held-out levels", progress)
    played = load_demonstrations(files, frame_skip, folder=folder, progress=lambda files: progress(files, "playback"))
    found, bank, place = with_bank(played)
    steps = _Steps(found.demonstrations, bank, place, frame_skip, progress)
    measured = _Measured.of(found.demonstrations, steps, bank, known)
    tables = predictors(transition_counts(steps.actions, steps.previous))
    categories = np.array([d.category for d in found.demonstrations])
    return Analysis(
        found=found,
        total=steps.group(np.ones(len(categories), bool), tables),
        groups={str(name): steps.group(categories == name, tables) for name in np.unique(categories)},
        components=tuple(_components(steps.states)),
        frames=measured.frames,
        par=measured.par,
        coverage=_coverage(known, set(measured.content)),
        several=_several(found.demonstrations),
        mirrored=_mirrored(found.demonstrations, measured.content),
        same_mirrored=_same_mirrored(found.demonstrations),
        leaks=tuple(_leaks(found.demonstrations, measured.content, forbidden)),
        anomalies=_anomalies(files, found, measured, known if levels else None),
    )


class _KnownLevel(NamedTuple):
    entry: LevelEntry
    level: Level
    file: str


@dataclass(frozen=True, eq=False)
class _Measured:
    """Measures of D demonstrations.

    content: ``symmetric_fingerprint`` of the level.
    frames: int64[D], length.
    par: float64[D], NaN if unknown.
    pace: float64[D], frames per px of the level's path; NaN without a path.
    idle: int64[D], frames of the longest interval without movement.
    """

    content: list[str]
    frames: np.ndarray
    par: np.ndarray
    pace: np.ndarray
    idle: np.ndarray

    @classmethod
    def of(
        cls,
        demonstrations: Sequence[Demonstration],
        steps: "_Steps",
        bank: LevelBank,
        known: Mapping[str, _KnownLevel],
    ) -> "_Measured":
        """Measure demonstrations.  known: content -> level of the level sets."""
        symmetric = {level: symmetric_fingerprint(level) for level in bank.levels}
        content = [symmetric[d.level] for d in demonstrations]
        frames = np.array([len(d.inputs) for d in demonstrations])
        par = np.array([(known[key].entry.par_frames if key in known else None) or np.nan for key in content])
        path = bank.path_length[steps.level].astype(float)
        pace = frames / np.where((path > 0) & (path < MAX_PATH), path, np.nan)
        return cls(content, frames, par, pace, steps.idle())


class _Steps:
    """All N decisions of D demonstrations, concatenated.

    states: float32[N, 26], observed before the decision.  actions, previous: int64[N].  demonstration: int64[N].
    """

    def __init__(
        self,
        demonstrations: Sequence[Demonstration],
        bank: LevelBank,
        place: Mapping[Level, int],
        frame_skip: int,
        progress: Progress,
    ):
        self.frame_skip = frame_skip
        self.lengths = np.array([len(d.actions) for d in demonstrations])
        self.first = np.cumsum([0, *self.lengths[:-1]])
        self.demonstration = np.repeat(np.arange(len(demonstrations)), self.lengths)
        self.actions = np.concatenate([d.actions for d in demonstrations])
        self.previous = np.concatenate([previous_actions(d.actions) for d in demonstrations])
        self.level = np.array([place[d.level] for d in demonstrations])
        self.states = np.empty((len(self.actions), *layout.SPECS[STATE].shape), np.float32)
        config = DatasetConfig(frame_skip=frame_skip, observations=(STATE,))
        by_length = np.argsort(self.lengths, kind="stable")  # demonstrations of a wave have similar lengths
        waves = [by_length[start : start + _WAVE] for start in range(0, len(by_length), _WAVE)]
        for wave in progress(waves, "states"):
            played = [demonstrations[i] for i in wave]
            rows = np.concatenate([self.first[i] + np.arange(self.lengths[i]) for i in wave])
            self.states[rows] = record(bank, self.level[wave], played, config)[STATE]
        reached = (bank.paths.distance[:, 0] < WALL).reshape(-1, NODES_X, NODES_Y)[:, :-1, :-1]
        self.reachable = reached.reshape(len(bank), CELLS_X, 2, CELLS_Y, 2).max(axis=(2, 4))
        self.visited = self._visited(len(bank))

    def column(self, name: str) -> np.ndarray:
        """Return a component of the observation ``state``, float32[N]."""
        return self.states[:, layout.SPECS[STATE].components.index(name)]

    def _tiles(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return column and row of the tiles at positions in px, int64[N] each."""
        return (np.clip(x // TILE, 0, CELLS_X - 1).astype(int), np.clip(y // TILE, 0, CELLS_Y - 1).astype(int))

    def _visited(self, levels: int) -> np.ndarray:
        """Return tiles on the straight lines between decisions, bool[levels, 44, 25]."""
        visited = np.zeros((levels, CELLS_X, CELLS_Y), bool)
        x, y = self.column("x"), self.column("y")
        last = np.append(self.demonstration[1:] != self.demonstration[:-1], True)
        ahead = np.where(last, np.arange(len(x)), np.arange(len(x)) + 1)
        for part in (0, 0.25, 0.5, 0.75):
            tiles = self._tiles(x + part * (x[ahead] - x), y + part * (y[ahead] - y))
            visited[self.level[self.demonstration], *tiles] = True
        return visited

    def idle(self) -> np.ndarray:
        """Return the frames of the longest interval without movement of each demonstration, int64[D]."""
        moved = np.hypot(np.diff(self.column("x")), np.diff(self.column("y"))) >= IDLE_PX
        edges = np.append(True, moved | (np.diff(self.demonstration) != 0))
        starts = np.flatnonzero(edges)
        still = np.diff(np.append(starts, len(edges))) - 1
        longest = np.zeros(len(self.lengths), int)
        np.maximum.at(longest, self.demonstration[starts], still)
        return longest * self.frame_skip

    def group(self, chosen: np.ndarray, tables: dict[str, np.ndarray]) -> Group:
        """Compute the statistics of some demonstrations.  chosen: bool[D].  tables: ``predictors``."""
        rows = chosen[self.demonstration]
        actions, previous = self.actions[rows], self.previous[rows]
        begins = np.append(True, (np.diff(actions) != 0) | (np.diff(self.demonstration[rows]) != 0))
        vx, vy = (np.rint(np.clip(self.column(name)[rows], -FASTEST, FASTEST) * 2) for name in ("vx", "vy"))
        size = 4 * FASTEST + 1
        column, row = self._tiles(self.column("x")[rows], self.column("y")[rows])
        names = [name for name in layout.SPECS[STATE].components if name.startswith("state_")]
        levels = np.unique(self.level[chosen])
        reachable = self.reachable[levels]
        seen = (self.visited[levels] & reachable).sum(axis=(1, 2))
        return Group(
            lengths=self.lengths[chosen],
            transitions=transition_counts(actions, previous),
            holds=np.diff(np.append(np.flatnonzero(begins), len(actions))),
            baselines={name: score(table[previous], actions, previous) for name, table in tables.items()},
            states={name.removeprefix("state_"): float(self.column(name)[rows].mean()) for name in names},
            airborne=float(self.column("airborne")[rows].mean()),
            positions=np.bincount(row * CELLS_X + column, minlength=NUM_CELLS).reshape(CELLS_Y, CELLS_X),
            speeds=np.bincount(
                ((vy + 2 * FASTEST) * size + vx + 2 * FASTEST).astype(int), minlength=size * size
            ).reshape(size, size),
            visited=seen / np.maximum(reachable.sum(axis=(1, 2)), 1),
        )


def _components(states: np.ndarray) -> Iterator[Component]:
    for name, values in zip(layout.SPECS[STATE].components, states.T, strict=True):
        values = values.astype(np.float64)
        _, counts = np.unique(values, return_counts=True)
        common = counts.max() / len(values)
        yield Component(name, values.min(), values.mean(), values.max(), values.std(), common)


def _known_levels(sets: Sequence[LevelSet], title: str, progress: Progress) -> dict[str, _KnownLevel]:
    """Return content -> level for all level sets; the first of equal levels."""
    known: dict[str, _KnownLevel] = {}
    for level_set in sets:
        for entry, level in zip(level_set.entries, progress(level_set, title), strict=True):
            one = _KnownLevel(entry, level, str(level_set.path / entry.file))
            known.setdefault(symmetric_fingerprint(level), one)
    return known


def _coverage(known: Mapping[str, _KnownLevel], demonstrated: set[str]) -> dict[str, np.ndarray]:
    groups = _grouped((one.entry.category for one in known.values()), known)
    return {category: np.array([key in demonstrated for key in keys]) for category, keys in groups.items()}


def _grouped(keys: Iterable[_Key], items: Iterable[_Item]) -> dict[_Key, list[_Item]]:
    groups: dict[_Key, list[_Item]] = {}
    for key, item in zip(keys, items, strict=True):
        groups.setdefault(key, []).append(item)
    return groups


def _several(demonstrations: Sequence[Demonstration]) -> tuple[tuple[str, ...], ...]:
    groups = _grouped((d.level for d in demonstrations), (d.name for d in demonstrations))
    return tuple(tuple(names) for names in groups.values() if len(names) > 1)


def _mirrored(demonstrations: Sequence[Demonstration], content: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    groups = _grouped(content, demonstrations)
    both = (group for group in groups.values() if len({d.level for d in group}) > 1)
    return tuple(tuple(d.name for d in group) for group in both)


def _same_mirrored(demonstrations: Sequence[Demonstration]) -> int:
    """Number of pairs of demonstrations that are mirror images, level and actions."""
    content = {(d.level, d.actions.tobytes()) for d in demonstrations}
    image_of = {level: mirror(level) for level in {d.level for d in demonstrations}}
    pairs = sum(
        image_of[d.level] != d.level and (image_of[d.level], MIRRORED_ACTION[d.actions].tobytes()) in content
        for d in demonstrations
    )
    return pairs // 2


def _leaks(
    demonstrations: Sequence[Demonstration], content: Sequence[str], forbidden: Mapping[str, _KnownLevel]
) -> Iterator[Anomaly]:
    for d, key in zip(demonstrations, content, strict=True):
        if key in forbidden:
            yield Anomaly(d.name, None, f"is the held-out level {forbidden[key].file} or its mirror image")


# Anomalies

_Found = tuple[str, Anomaly]  # kind and anomaly


def _anomalies(
    files: Sequence[ReplayFile],
    found: DemonstrationSet,
    measured: _Measured,
    known: Mapping[str, _KnownLevel] | None,
) -> dict[str, tuple[Anomaly, ...]]:
    """Return kind -> anomalies.  known: content -> level of --levels; None without level sets."""
    kinds: dict[str, list[Anomaly]] = defaultdict(list)
    for item in found.left_out:
        kinds[item.reason].append(Anomaly(item.name, None, item.detail))
    file_of = {file.name: file for file in files}
    anomalies: list[_Found] = [*_slow(found.demonstrations, measured)]
    for d, key in zip(found.demonstrations, measured.content, strict=True):
        if known is not None:
            anomalies += _unexpected_level(d, known.get(key))
        anomalies += _unusual_recording(d, file_of[d.name])
    for kind, anomaly in anomalies:
        kinds[kind].append(anomaly)
    order = {kind: sorted(items, key=lambda item: -(item.value or 0)) for kind, items in kinds.items()}
    return {kind: tuple(items) for kind, items in sorted(order.items(), key=lambda pair: -len(pair[1]))}


def _slow(demonstrations: Sequence[Demonstration], measured: _Measured) -> Iterator[_Found]:
    """Yield slow demonstrations: idle, or long relative to par, path, category or the same level."""
    usual = np.nanmedian(measured.pace) if np.isfinite(measured.pace).any() else np.nan
    lengths = measured.frames.tolist()
    categories = _grouped((d.category for d in demonstrations), lengths)
    fastest = {key: min(group) for key, group in _grouped(measured.content, lengths).items()}
    for i, (d, frames) in enumerate(zip(demonstrations, lengths, strict=True)):
        idle, par, pace = int(measured.idle[i]), float(measured.par[i]), float(measured.pace[i])
        median, best = float(np.median(categories[d.category])), fastest[measured.content[i]]
        if idle >= IDLE_FRAMES:
            yield IDLE, Anomaly(d.name, idle, f"{idle} consecutive frames without moving, of {frames}")
        if frames > SLOW * par:
            text = f"{frames} frames, {frames / par:.1f} times par ({par:.0f})"
            yield SLOWER_THAN_PAR, Anomaly(d.name, frames / par, text)
        if pace > SLOW_PATH * usual:
            text = f"{frames} frames for {frames / pace:.0f} px, {pace / usual:.1f} times the usual"
            yield SLOW_FOR_ITS_PATH, Anomaly(d.name, pace / usual, text)
        if frames > LONG_FOR_CATEGORY * median:
            text = f"{frames} frames, the median of {d.category} is {median:.0f}"
            yield LONG_FOR_ITS_CATEGORY, Anomaly(d.name, frames / median, text)
        if frames > SLOW * best:
            text = f"{frames} frames, the fastest on this level {best}"
            yield SLOWER_THAN_OTHERS, Anomaly(d.name, frames / best, text)


def _unexpected_level(d: Demonstration, known: _KnownLevel | None) -> Iterator[_Found]:
    """Yield an anomaly if the level is not in --levels (``known`` is None), or in another category there."""
    if known is None:
        yield NOT_IN_LEVELS, Anomaly(d.name, None, f"category {d.category}")
    elif known.entry.category != d.category:
        yield OTHER_CATEGORY, Anomaly(d.name, None, f"{d.category} here, {known.entry.category} in the level set")


def _unusual_recording(d: Demonstration, file: ReplayFile) -> Iterator[_Found]:
    """Yield anomalies of the file, which a demonstration no longer has: it is re-timed, cut at the win and cleaned."""
    if d.retimed and d.deviation_px > LARGE_DEVIATION_PX:
        yield RETIMED_FAR, Anomaly(d.name, d.deviation_px, f"{d.deviation_px:.1f} px from the recording on average")
    replay, won = file.replay, d.recorded_frames
    if replay.frames > won:
        text = f"{replay.frames - won} inputs after the win at frame {won}"
        yield AFTER_WIN, Anomaly(d.name, replay.frames - won, text)
    both = int((replay.inputs[:won] & (LEFT | RIGHT) == LEFT | RIGHT).sum())
    if both:
        yield BOTH_HELD, Anomaly(d.name, both, f"{both} frames with input byte 6 or 7, interpreted as left")
    for warning in replay.warnings:
        yield DEFECT, Anomaly(d.name, None, warning)


# Findings


def _findings(analysis: Analysis) -> Iterator[Finding]:
    total = analysis.total
    count = len(total.lengths)
    if analysis.leaks:
        yield Finding(
            True,
            f"LEAK: {len(analysis.leaks)} of {count} demonstrations are of held-out levels; success there would measure "
            f"memorisation (first: {analysis.leaks[0].name}). Remove these files, or hold out other levels",
        )
    yield from (Finding(False, text) for text in _remarks(analysis, total, count))


def _remarks(analysis: Analysis, total: Group, count: int) -> Iterator[str]:
    """Yield findings that are not problems.  count: of demonstrations."""
    excluded = analysis.found.left_out
    if excluded:
        yield f"{len(excluded)} of {count + len(excluded)} replays cannot be used; the reasons are under Anomalies"
    yield from _coverage_remarks(analysis.coverage)
    if never := [name for name, times in zip(ACTION_NAMES, total.actions, strict=True) if times == 0]:
        yield f"actions without an example: {', '.join(never)}; a BC policy cannot learn them"
    constant = [c.name for c in analysis.components if c.constant]
    nearly = [c.name for c in analysis.components if not c.constant and c.common > NEARLY_CONSTANT]
    for names, text in ((constant, "never varies"), (nearly, f"has one value in over {NEARLY_CONSTANT:.1%}")):
        if names:
            yield f"{len(names)} of {len(analysis.components)} components of state: {text}: {', '.join(names)}"
    repeated = total.baselines["repeat_previous"].accuracy
    yield (
        f"repeating the previous action is correct in {repeated:.1%} of the decisions: evaluate a BC policy by its accuracy "
        "on changes"
    )
    if several := len(analysis.several):
        yield f"{several} levels have several demonstrations, up to {max(map(len, analysis.several))}"
    if analysis.mirrored:
        yield (
            f"{len(analysis.mirrored)} levels occur together with their mirror image; {analysis.same_mirrored} pairs also "
            "have mirrored actions, which adds nothing if training mirrors the demonstrations"
        )
    reasons = {item.reason for item in excluded}
    for kind, items in analysis.anomalies.items():
        if kind not in reasons:
            yield f"{kind}: {len(items)} of {count} demonstrations, e.g. {items[0].name}: {items[0].detail}"


def _coverage_remarks(coverage: Mapping[str, np.ndarray]) -> Iterator[str]:
    for category, demonstrated in coverage.items():
        if not demonstrated.all():
            share = f"{demonstrated.mean():.1%}"
            yield f"{category}: {demonstrated.sum()} of {len(demonstrated)} levels have a demonstration ({share})"
