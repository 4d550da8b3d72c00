"""Statistics of a folder of demonstrations and the problems found in it.

    analysis = analyse(find_replays(folder), 4, folder=folder, levels=[LevelSet.open("datasets/train")])
    print(analysis.text())

The observations come from the simulator that training uses.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import numpy as np

from bc.baselines import previous_actions
from bc.dataset import DatasetConfig, record, with_bank
from bc.demonstrations import Demonstration, DemonstrationSet, ReplayFile, load_demonstrations
from nppsim.actions import ACTION_NAMES, LEFT, MIRRORED_ACTION, NUM_ACTIONS, RIGHT
from nppsim.io.files import table
from nppsim.levels.level import mirror, symmetric_fingerprint
from nppsim.levels.level_set import LevelEntry, LevelSet
from nppsim.observe import layout

STATE = "game_state"
_COLUMN = layout.slots(layout.SPECS[STATE].components)
# Thresholds of anomalies.
IDLE_FRAMES = 60  # minimum length of a listed idle interval
IDLE_PX = 0.05  # px per decision; a ninja that moves less counts as idle
SLOW = 2.0  # minimum ratio to par, or to the level's fastest demonstration, of a length that is listed as much longer
LARGE_DEVIATION_PX = 10.0  # maximum mean distance between a re-timed run and its recording: the ninja's radius
NEARLY_CONSTANT = 0.999  # share of the most frequent value above which a component counts as nearly constant
SHOWN = 10  # maximum number of listed anomalies of each kind
_BATCH = 512  # number of demonstrations that the simulator plays in parallel

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
class Remark:
    """A sentence about the demonstrations.  ``problem`` is True if training with them would be invalid."""

    problem: bool
    text: str


@dataclass(frozen=True, eq=False)
class Analysis:
    """Result of ``analyse`` for D demonstrations.

    found: the demonstrations, sorted by length, and the excluded replays.
    actions: int64[6], number of decisions with each action.
    repeated: share of decisions with the same action as the decision before (no-op before the first).
    constant, nearly_constant: names of the components of the observation ``state`` with one value in all, or in nearly all,
        decisions.
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
    actions: np.ndarray
    repeated: float
    constant: tuple[str, ...]
    nearly_constant: tuple[str, ...]
    frames: np.ndarray
    par: np.ndarray
    coverage: dict[str, np.ndarray]
    several: tuple[tuple[str, ...], ...]
    mirrored: tuple[tuple[str, ...], ...]
    same_mirrored: int
    leaks: tuple[Anomaly, ...]
    anomalies: dict[str, tuple[Anomaly, ...]]

    @cached_property
    def remarks(self) -> tuple[Remark, ...]:
        """Remarks as sentences, problems first."""
        return tuple(_remarks(self))

    def text(self) -> str:
        """Return counts, lengths, remarks and anomalies for printing."""
        lines = [self.found.table(), "", self._lengths(), "", "remarks:"]
        lines += [f"  {'PROBLEM: ' if remark.problem else ''}{remark.text}" for remark in self.remarks]
        excluded = {item.reason for item in self.found.excluded}  # these are in the first table
        for kind, items in self.anomalies.items():
            if kind not in excluded:
                lines += [f"{kind}: {len(items)}", *(f"  {item.name}: {item.detail}" for item in items[:SHOWN])]
        return "\n".join(lines)

    def _lengths(self) -> str:
        rows, categories = [], np.array([d.category for d in self.found.demonstrations])
        decisions = np.array([len(d.actions) for d in self.found.demonstrations])
        for name in np.unique(categories):
            lengths, ratio = decisions[categories == name], (self.frames / self.par)[categories == name]
            ratio = ratio[np.isfinite(ratio)]
            against_par = f"{np.median(ratio):.2f}" if len(ratio) else "-"
            rows.append((name, len(lengths), f"{np.median(lengths):g}", lengths.max(), against_par))
        return table(("category", "demonstrations", "decisions (median)", "(most)", "frames / par (median)"), rows)


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
    for start in progress(range(0, len(demonstrations), _BATCH), "states"):
        batch = demonstrations[start : start + _BATCH]
        states.append(record(bank, [level_index[d.level] for d in batch], batch, config)[STATE])
    decisions = _Decisions(demonstrations, np.concatenate(states))
    symmetric = {level: symmetric_fingerprint(level) for level in bank.levels}
    content = [symmetric[d.level] for d in demonstrations]
    frames = np.array([len(d.inputs) for d in demonstrations])
    par = np.array([(known[key].par_frames if key in known else None) or np.nan for key in content])
    constant, nearly_constant = _constant_components(decisions.states)
    unusual = [
        *_slow(demonstrations, content, frames, par, decisions.idle() * frame_skip),
        *_unusual_recordings(demonstrations, files),
        *(_unexpected_levels(demonstrations, content, known) if levels else ()),
    ]
    return Analysis(
        found=replace(found, demonstrations=tuple(demonstrations)),
        actions=np.bincount(decisions.actions, minlength=NUM_ACTIONS),
        repeated=float((decisions.actions == decisions.previous).mean()),
        constant=constant,
        nearly_constant=nearly_constant,
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

    def idle(self) -> np.ndarray:
        """Return each demonstration's longest interval without movement, in decisions, int64[D]."""
        x, y = self.states[:, _COLUMN.x], self.states[:, _COLUMN.y]
        moved = np.hypot(np.diff(x), np.diff(y)) >= IDLE_PX
        begins = np.flatnonzero(np.append(True, moved | (np.diff(self.demonstration) != 0)))
        still = np.diff(np.append(begins, len(x))) - 1
        longest = np.zeros(self.demonstration[-1] + 1, int)
        np.maximum.at(longest, self.demonstration[begins], still)
        return longest


def _constant_components(states: np.ndarray) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the components with one value, and of those with one value in nearly all decisions."""
    names = layout.SPECS[STATE].components
    common = [np.unique(values, return_counts=True)[1].max() / len(values) for values in states.T]
    shares = dict(zip(names, common, strict=True))
    constant = tuple(name for name, share in shares.items() if share == 1)
    return constant, tuple(name for name, share in shares.items() if NEARLY_CONSTANT < share < 1)


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
    excluded = [(item.reason, Anomaly(item.name, None, item.detail)) for item in found.excluded]
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


# Remarks


def _remarks(analysis: Analysis) -> Iterator[Remark]:
    count = len(analysis.frames)
    if analysis.leaks:
        yield Remark(
            True,
            f"LEAK: {len(analysis.leaks)} of {count} demonstrations are of held-out levels; success there would measure "
            f"memorisation (first: {analysis.leaks[0].name}). Remove these files, or hold out other levels",
        )
    yield from (Remark(False, text) for text in _notes(analysis, count))


def _notes(analysis: Analysis, count: int) -> Iterator[str]:
    """Yield remarks that are not problems.  count: number of demonstrations."""
    excluded = analysis.found.excluded
    if excluded:
        yield f"{len(excluded)} of {count + len(excluded)} replays cannot be used; the reasons are above"
    for category, demonstrated in analysis.coverage.items():
        if not demonstrated.all():
            share = f"{demonstrated.mean():.1%}"
            yield f"{category}: {demonstrated.sum()} of {len(demonstrated)} levels have a demonstration ({share})"
    if never := [name for name, times in zip(ACTION_NAMES, analysis.actions, strict=True) if times == 0]:
        yield f"actions without an example: {', '.join(never)}; a BC policy cannot learn them"
    for names, text in (
        (analysis.constant, "never vary"),
        (analysis.nearly_constant, f"have one value in over {NEARLY_CONSTANT:.1%} of decisions"),
    ):
        if names:
            yield f"{len(names)} components of state {text}: {', '.join(names)}"
    yield (
        f"repeating the previous action is correct in {analysis.repeated:.1%} of the decisions: evaluate a BC policy by its "
        "accuracy on changes"
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
