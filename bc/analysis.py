"""Statistics of a folder of demonstrations and the problems found in it.

    analysis = analyse(find_replays(folder), 4, folder=folder, levels=[LevelSet.open("datasets/train")])
    analysis.findings  # sentences about what to check before training

``bc.demonstration_report`` writes the result as a page.  The observations come from the simulator that training uses.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np

from bc.baselines import Metrics, predictors, previous_actions, score, transition_counts
from bc.dataset import DatasetConfig, record, with_bank
from bc.demonstrations import Demonstration, DemonstrationSet, ReplayFile, load_demonstrations
from nppsim.actions import ACTION_NAMES, LEFT, MIRRORED_ACTION, RIGHT
from nppsim.levels.level import mirror, symmetric_fingerprint
from nppsim.levels.level_set import LevelEntry, LevelSet
from nppsim.levels.stage import CELLS_X, CELLS_Y, STAGE_HEIGHT, STAGE_WIDTH
from nppsim.observe import layout

STATE = "game_state"
_COLUMN = layout.slots(layout.SPECS[STATE].components)
# Thresholds of anomalies.
IDLE_FRAMES = 60  # minimum length of a listed idle interval
IDLE_PX = 0.05  # px per decision; a ninja that moves less counts as idle
SLOW = 2.0  # minimum ratio to par, or to the level's fastest demonstration, of a length that is listed as much longer
LARGE_DEVIATION_PX = 10.0  # maximum mean distance between a re-timed run and its recording: the ninja's radius
NEARLY_CONSTANT = 0.999  # share of the most frequent value above which a component counts as nearly constant
_WAVE = 512  # number of demonstrations that the simulator plays in parallel

# Kinds of anomalies besides the reasons for excluding a replay.
IDLE = "idle interval"
SLOWER_THAN_PAR = "much longer than par"
SLOWER_THAN_OTHERS = "much longer than another one"
RETIMED_FAR = "re-timed with a large deviation"
NOT_IN_LEVELS = "level not in --levels"
OTHER_CATEGORY = "another category in --levels"
AFTER_WIN = "inputs after the win"
BOTH_HELD = "left and right pressed together"
DEFECT = "tolerated defect of the file"

_Key = TypeVar("_Key", bound=Hashable)
_Item = TypeVar("_Item")
Progress = Callable[[Iterable, str], Iterable]  # wraps an iterable; the second argument is a title


@dataclass(frozen=True)
class Anomaly:
    """An unusual replay.

    value: frames, px or a ratio, depending on the kind of anomaly; None if the kind has no number.
    """

    name: str
    value: float | None
    detail: str


@dataclass(frozen=True)
class Finding:
    """A sentence about the demonstrations.  ``problem`` is True if training with them would be invalid."""

    problem: bool
    text: str


@dataclass(frozen=True, eq=False)
class Group:
    """Statistics of D demonstrations, either of one category or of all.

    lengths: int64[D], number of decisions.
    transitions: int64[6, 6], counts of each action (column) after each previous action (row).  The action before the first
        decision is no-op.
    holds: int64[intervals], number of decisions of each interval in which the action does not change.
    baselines: metrics of trivial predictors that were fitted to all demonstrations of the folder.
    positions: float64[25, 44], number of decisions in each tile of the stage.
    """

    lengths: np.ndarray
    transitions: np.ndarray
    holds: np.ndarray
    baselines: dict[str, Metrics]
    positions: np.ndarray

    @property
    def actions(self) -> np.ndarray:
        """Number of decisions with each action, int64[6]."""
        return self.transitions.sum(axis=0)


@dataclass(frozen=True)
class Component:
    """Statistics of one component of the observation ``state``, in raw units.

    spread: standard deviation.
    common: share of decisions with the most frequent value.
    """

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

    found: the demonstrations, sorted by length, and the excluded replays.
    total: statistics of all demonstrations.
    groups: statistics of each category.
    components: statistics of the observation ``state``.
    frames: int64[D], length of each demonstration.
    par: float64[D], par of the level in the level sets, in frames; NaN if it is unknown.
    coverage: bool[L] for each category of the level sets, True for levels with a demonstration of the level or its mirror
        image.
    several: names of the demonstrations of each level that has more than one demonstration.
    mirrored: names of the demonstrations of each level that occurs together with its mirror image.
    same_mirrored: number of pairs of demonstrations whose levels and actions are mirror images.
    leaks: demonstrations of held-out levels.
    anomalies: anomalies of each kind, the most extreme first.
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
    held_out: test levels, which must have no demonstration.
    Raises DemonstrationError without usable replays, LevelSetError for an unreadable level, and DatasetError.
    """
    known, forbidden = _entries(levels, "levels", progress), _entries(held_out, "held-out levels", progress)
    played = load_demonstrations(files, frame_skip, folder=folder, progress=lambda files: progress(files, "playback"))
    found, bank, level_index = with_bank(played)
    demonstrations = sorted(found.demonstrations, key=lambda d: len(d.actions))
    config, states = DatasetConfig(frame_skip=frame_skip, observations=(STATE,)), []
    for start in progress(range(0, len(demonstrations), _WAVE), "states"):
        wave = demonstrations[start : start + _WAVE]
        states.append(record(bank, [level_index[d.level] for d in wave], wave, config)[STATE])
    decisions = _Decisions(demonstrations, np.concatenate(states))
    symmetric = {level: symmetric_fingerprint(level) for level in bank.levels}
    content = [symmetric[d.level] for d in demonstrations]
    frames = np.array([len(d.inputs) for d in demonstrations])
    par = np.array([(known[key].par_frames if key in known else None) or np.nan for key in content])
    categories = np.array([d.category for d in demonstrations])
    unusual = [
        *_slow(demonstrations, content, frames, par, decisions.idle() * frame_skip),
        *_unusual_recordings(demonstrations, files),
        *(_unexpected_levels(demonstrations, content, known) if levels else ()),
    ]
    return Analysis(
        found=replace(found, demonstrations=tuple(demonstrations)),
        total=decisions.group(np.ones(len(categories), bool)),
        groups={str(name): decisions.group(categories == name) for name in np.unique(categories)},
        components=tuple(_components(decisions.states)),
        frames=frames,
        par=par,
        coverage=_coverage(known, set(content)),
        several=_names_of(_grouped((d.level, d) for d in demonstrations).values()),
        mirrored=_names_of(
            group
            for group in _grouped(zip(content, demonstrations, strict=True)).values()
            if len({d.level for d in group}) > 1
        ),
        same_mirrored=_same_mirrored(demonstrations),
        leaks=tuple(
            Anomaly(d.name, None, f"is the held-out level {forbidden[key].file} or its mirror image")
            for d, key in zip(demonstrations, content, strict=True)
            if key in forbidden
        ),
        anomalies=_by_kind(found, unusual),
    )


class _Decisions:
    """All N decisions of D demonstrations, concatenated.

    states: float32[N, 26], the observation ``state`` before each decision.
    actions, previous: int64[N], action of each decision, and action of the decision before it.
    demonstration: int64[N], index of the demonstration that contains the decision.
    """

    def __init__(self, demonstrations: Sequence[Demonstration], states: np.ndarray):
        self.states = states
        self.demonstration = np.repeat(np.arange(len(demonstrations)), [len(d.actions) for d in demonstrations])
        self.actions = np.concatenate([d.actions for d in demonstrations])
        self.previous = np.concatenate([previous_actions(d.actions) for d in demonstrations])
        self._predictors = predictors(transition_counts(self.actions, self.previous))

    def idle(self) -> np.ndarray:
        """Return each demonstration's longest interval without movement, in decisions, int64[D]."""
        x, y = self.states[:, _COLUMN.x], self.states[:, _COLUMN.y]
        moved = np.hypot(np.diff(x), np.diff(y)) >= IDLE_PX
        begins = np.flatnonzero(np.append(True, moved | (np.diff(self.demonstration) != 0)))
        still = np.diff(np.append(begins, len(x))) - 1
        longest = np.zeros(self.demonstration[-1] + 1, int)
        np.maximum.at(longest, self.demonstration[begins], still)
        return longest

    def group(self, chosen: np.ndarray) -> Group:
        """Compute the statistics of the demonstrations for which ``chosen``, bool[D], is True."""
        rows = chosen[self.demonstration]
        actions, previous, states = self.actions[rows], self.previous[rows], self.states[rows]
        begins = np.append(True, (np.diff(actions) != 0) | (np.diff(self.demonstration[rows]) != 0))
        stage = ((0, STAGE_HEIGHT), (0, STAGE_WIDTH))
        return Group(
            lengths=np.bincount(self.demonstration)[chosen],
            transitions=transition_counts(actions, previous),
            holds=np.diff(np.append(np.flatnonzero(begins), len(actions))),
            baselines={name: score(table[previous], actions, previous) for name, table in self._predictors.items()},
            positions=np.histogram2d(states[:, _COLUMN.y], states[:, _COLUMN.x], (CELLS_Y, CELLS_X), stage)[0],
        )


def _components(states: np.ndarray) -> Iterator[Component]:
    for name, values in zip(layout.SPECS[STATE].components, states.T.astype(np.float64), strict=True):
        common = np.unique(values, return_counts=True)[1].max() / len(values)
        yield Component(name, values.min(), values.mean(), values.max(), values.std(), common)


def _entries(sets: Sequence[LevelSet], title: str, progress: Progress) -> dict[str, LevelEntry]:
    """Return the entries of all level sets, with full paths, by ``symmetric_fingerprint`` of their level.

    Of equal levels, and of a level and its mirror image, only the first entry is returned.
    """
    known: dict[str, LevelEntry] = {}
    for level_set in sets:
        for entry, level in zip(level_set.entries, progress(level_set, title), strict=True):
            entry = replace(entry, file=str(level_set.path / entry.file))
            known.setdefault(symmetric_fingerprint(level), entry)
    return known


def _coverage(known: Mapping[str, LevelEntry], demonstrated: set[str]) -> dict[str, np.ndarray]:
    groups = _grouped((entry.category, key in demonstrated) for key, entry in known.items())
    return {category: np.array(levels) for category, levels in groups.items()}


def _grouped(pairs: Iterable[tuple[_Key, _Item]]) -> dict[_Key, list[_Item]]:
    groups: dict[_Key, list[_Item]] = defaultdict(list)
    for key, item in pairs:
        groups[key].append(item)
    return dict(groups)


def _names_of(groups: Iterable[list[Demonstration]]) -> tuple[tuple[str, ...], ...]:
    """Return the names in each group of more than one demonstration."""
    return tuple(tuple(d.name for d in group) for group in groups if len(group) > 1)


def _same_mirrored(demonstrations: Sequence[Demonstration]) -> int:
    """Count pairs of demonstrations whose levels and actions are mirror images."""
    content = {(d.level, d.actions.tobytes()) for d in demonstrations}
    image_of = {level: mirror(level) for level in {d.level for d in demonstrations}}
    pairs = sum(
        image_of[d.level] != d.level and (image_of[d.level], MIRRORED_ACTION[d.actions].tobytes()) in content
        for d in demonstrations
    )
    return pairs // 2


# Anomalies

_Found = tuple[str, Anomaly]  # kind and anomaly


def _by_kind(found: DemonstrationSet, unusual: Iterable[_Found]) -> dict[str, tuple[Anomaly, ...]]:
    """Return anomalies and excluded replays by kind, the most frequent kind and the largest values first."""
    excluded = [(item.reason, Anomaly(item.name, None, item.detail)) for item in found.left_out]
    kinds = sorted(_grouped([*excluded, *unusual]).items(), key=lambda pair: -len(pair[1]))
    return {kind: tuple(sorted(items, key=lambda item: -(item.value or 0))) for kind, items in kinds}


def _slow(
    demonstrations: Sequence[Demonstration],
    content: Sequence[str],
    frames: np.ndarray,
    par: np.ndarray,
    idle: np.ndarray,
) -> Iterator[_Found]:
    """Yield demonstrations with a long idle interval, or much longer than par or another demonstration of the level."""
    fastest = {key: min(group) for key, group in _grouped(zip(content, frames.tolist(), strict=True)).items()}
    for d, key, length, usual, still in zip(demonstrations, content, frames.tolist(), par, idle.tolist(), strict=True):
        if still >= IDLE_FRAMES:
            yield IDLE, Anomaly(d.name, still, f"{still} consecutive frames without moving, of {length}")
        if length > SLOW * usual:
            text = f"{length} frames, {length / usual:.1f} times par ({usual:.0f})"
            yield SLOWER_THAN_PAR, Anomaly(d.name, length / usual, text)
        if length > SLOW * fastest[key]:
            text = f"{length} frames, {length / fastest[key]:.1f} times the fastest on this level ({fastest[key]})"
            yield SLOWER_THAN_OTHERS, Anomaly(d.name, length / fastest[key], text)


def _unexpected_levels(
    demonstrations: Sequence[Demonstration], content: Sequence[str], known: Mapping[str, LevelEntry]
) -> Iterator[_Found]:
    """Yield demonstrations whose level is not in --levels, or has another category there."""
    for d, key in zip(demonstrations, content, strict=True):
        if key not in known:
            yield NOT_IN_LEVELS, Anomaly(d.name, None, f"category {d.category}")
        elif known[key].category != d.category:
            yield OTHER_CATEGORY, Anomaly(d.name, None, f"{d.category} here, {known[key].category} in the level set")


def _unusual_recordings(demonstrations: Sequence[Demonstration], files: Sequence[ReplayFile]) -> Iterator[_Found]:
    """Yield defects of replay files that are corrected in the demonstrations, and large deviations by re-timing."""
    replay_of = {file.name: file for file in files}
    for d in demonstrations:
        replay, won = replay_of[d.name].replay, d.recorded_frames
        if d.retimed and d.deviation_px > LARGE_DEVIATION_PX:
            text = f"{d.deviation_px:.1f} px from the recording on average"
            yield RETIMED_FAR, Anomaly(d.name, d.deviation_px, text)
        if replay.frames > won:
            text = f"{replay.frames - won} inputs after the win at frame {won}"
            yield AFTER_WIN, Anomaly(d.name, replay.frames - won, text)
        if both := int((replay.inputs[:won] & (LEFT | RIGHT) == LEFT | RIGHT).sum()):
            yield BOTH_HELD, Anomaly(d.name, both, f"{both} frames with input byte 6 or 7, interpreted as left")
        for warning in replay.warnings:
            yield DEFECT, Anomaly(d.name, None, warning)


# Findings


def _findings(analysis: Analysis) -> Iterator[Finding]:
    count = len(analysis.frames)
    if analysis.leaks:
        yield Finding(
            True,
            f"LEAK: {len(analysis.leaks)} of {count} demonstrations are of held-out levels; success there would measure "
            f"memorisation (first: {analysis.leaks[0].name}). Remove these files, or hold out other levels",
        )
    yield from (Finding(False, text) for text in _remarks(analysis, count))


def _remarks(analysis: Analysis, count: int) -> Iterator[str]:
    """Yield findings that are not problems.  count: number of demonstrations."""
    excluded = analysis.found.left_out
    if excluded:
        yield f"{len(excluded)} of {count + len(excluded)} replays cannot be used; the reasons are under Anomalies"
    for category, demonstrated in analysis.coverage.items():
        if not demonstrated.all():
            share = f"{demonstrated.mean():.1%}"
            yield f"{category}: {demonstrated.sum()} of {len(demonstrated)} levels have a demonstration ({share})"
    total = analysis.total
    if never := [name for name, times in zip(ACTION_NAMES, total.actions, strict=True) if times == 0]:
        yield f"actions without an example: {', '.join(never)}; a BC policy cannot learn them"
    constant = [c.name for c in analysis.components if c.constant]
    nearly = [c.name for c in analysis.components if not c.constant and c.common > NEARLY_CONSTANT]
    for names, text in (
        (constant, "never vary"),
        (nearly, f"have one value in over {NEARLY_CONSTANT:.1%} of decisions"),
    ):
        if names:
            yield f"{len(names)} of {len(analysis.components)} components of state {text}: {', '.join(names)}"
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
            "have mirrored actions; these add nothing if training mirrors the demonstrations"
        )
    reasons = {item.reason for item in excluded}
    for kind, items in analysis.anomalies.items():
        if kind not in reasons:
            yield f"{kind}: {len(items)} of {count} demonstrations, e.g. {items[0].name}: {items[0].detail}"
