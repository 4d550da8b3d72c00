"""What a folder of demonstrations holds, and what is wrong with it, in numbers; ``bc.report`` shows them.

    analysis = analyse(find_replays(folder), 4, folder=folder, levels=[LevelSet.open("datasets/train")])
    analysis.findings  # what to look at before training, as sentences

States are those that an agent observes before each decision, from the simulator that training uses (``bc.dataset``).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

import nppsim
from bc.baselines import Metrics, predictors, previous_actions, score, transition_counts
from bc.dataset import DatasetConfig, record, with_bank
from bc.demonstrations import DemonstrationSet, ReplayFile, load_demonstrations
from nppsim.actions import ACTION_NAMES, LEFT, RIGHT
from nppsim.generate.variety import HAZARDS
from nppsim.levels.kinds import LOCKED_DOOR, REGULAR_DOOR, TRAP_DOOR
from nppsim.levels.level import Level, mirror, symmetric_fingerprint
from nppsim.levels.level_set import LevelEntry, LevelSet
from nppsim.observe import layout
from nppsim.observe.layout import MAX_PATH
from nppsim.paths import NODES_X, NODES_Y, WALL
from nppsim.pictures.region import STAGE, TILE
from nppsim.replays.replay import Replay

STATE = "game_state"
IDLE_FRAMES = 60  # without moving: an idle stretch that is told
IDLE_PX = 0.05  # per decision: less is no movement
SLOW = 2.0  # times par, or times the fastest demonstration of the same level: much longer
SLOW_WAY = 3.0  # times the usual frames per px of way: much longer than the way, told also where no par is known
LONG_FOR_CATEGORY = 5.0  # times the median of the category: an odd one out, or of another category
LARGE_DEVIATION_PX = 10.0  # of a re-timed run from its recording, on average: the radius of the ninja
NEARLY_CONSTANT = 0.999  # share of decisions with the same value
FASTEST = 10  # px per frame: the edge of the histogram of speeds, where faster ones are counted
PARTLY = 0.5  # share with demonstration in a quarter of the levels, against that of all: below it, a part is missing
FEW_LEVELS = 20  # of a category: too few to speak of quarters
_MIRRORED_ACTION = np.array([0, 2, 1, 3, 5, 4])
_WAVE = 512  # demonstrations stepped side by side
_CHUNK = 256  # levels compiled at once

# Kinds of anomalies besides the reasons for leaving a replay out.
IDLE, SLOWER_THAN_PAR, SLOWER_THAN_OTHERS = "idle stretch", "much longer than par", "much longer than another one"
SLOW_FOR_ITS_WAY, LONG_FOR_ITS_CATEGORY = "slow for its way", "much longer than its category"
RETIMED_FAR, NOT_IN_LEVELS, OTHER_CATEGORY = "re-timed far off", "level not in --levels", "another category in --levels"
AFTER_WIN, BOTH_HELD, DEFECT = "inputs after the win", "left and right held together", "tolerated defect of the file"


@dataclass(frozen=True)
class Anomaly:
    """One replay that is odd.  value: how much (frames, px, ratio; by kind), None where the detail says all."""

    name: str
    value: float | None
    detail: str


@dataclass(frozen=True)
class Finding:
    """A sentence on what to look at.  problem: it would spoil training."""

    problem: bool
    text: str


@dataclass(frozen=True, eq=False)
class Group:
    """The demonstrations of one category, or all; D demonstrations.

    lengths: int64[D], decisions.  transitions: int64[6, 6], action (column) after the previous one (row; no-op before
    the first).  holds: int64, decisions of each stretch with one action (the last one of each demonstration is cut off by
    the win).  baselines: trivial predictors, which learned from all demonstrations of the folder, measured on these.
    states: share of the decisions in each state of the ninja.  airborne: share.  positions: int64[25, 44], decisions per
    tile of the stage.  speeds: int64[41, 41], decisions by vy (row) and vx (column), -10 to 10 px per frame in halves.
    visited: float64[levels], share of the tiles that the path field reaches which the demonstrations of a level visit.
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
        """int64[6]: how often each action occurs."""
        return self.transitions.sum(axis=0)


@dataclass(frozen=True)
class Component:
    """One number of the observation ``state`` over all decisions, raw units; common: share of its most frequent value."""

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
class Coverage:
    """The levels of one category of ``--levels``; L levels, a mirror image counts as the same.

    demonstrated: bool[L].  measures: name -> float64[L]; the length of the way in px is NaN where there is none.
    """

    demonstrated: np.ndarray
    measures: dict[str, np.ndarray]

    @property
    def share(self) -> float:
        return float(self.demonstrated.mean())

    def quarters(self, measure: str) -> tuple[float, ...]:
        """Share with demonstration in each quarter of the levels, ordered by a measure; () for fewer than FEW_LEVELS."""
        known = np.flatnonzero(np.isfinite(self.measures[measure]))
        if len(known) < FEW_LEVELS:
            return ()
        ordered = known[np.argsort(self.measures[measure][known], kind="stable")]
        return tuple(float(self.demonstrated[part].mean()) for part in np.array_split(ordered, 4))

    def beyond(self, measure: str) -> int:
        """Number of levels above the largest value of a measure that is demonstrated."""
        values = self.measures[measure]
        demonstrated = values[self.demonstrated & np.isfinite(values)]
        return int((values > demonstrated.max(initial=-np.inf)).sum())


@dataclass(frozen=True, eq=False)
class Analysis:
    """What ``analyse`` finds; D demonstrations.

    found: the demonstrations, and what was left out.  total, groups: all demonstrations, and by category.  components:
    of the observation ``state``.  frames: int64[D]; par: float64[D], NaN where no level set knows it.  coverage: category
    of the level sets -> Coverage; empty without level sets.  several: names of the demonstrations of each level that has
    more than one.  mirrored: names, of each level that occurs with its mirror image too; the same_mirrored of them have
    the mirrored actions as well.  leaks: demonstrations of held-out levels.  anomalies: kind -> the most extreme first.
    """

    found: DemonstrationSet
    total: Group
    groups: dict[str, Group]
    components: tuple[Component, ...]
    frames: np.ndarray
    par: np.ndarray
    coverage: dict[str, Coverage]
    several: tuple[tuple[str, ...], ...]
    mirrored: tuple[tuple[str, ...], ...]
    same_mirrored: int
    leaks: tuple[Anomaly, ...]
    anomalies: dict[str, tuple[Anomaly, ...]]

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """What to look at, problems first."""
        return tuple(_findings(self))


def analyse(
    files: Sequence[ReplayFile],
    frame_skip: int,
    *,
    folder: str = "",
    levels: Sequence[LevelSet] = (),
    held_out: Sequence[LevelSet] = (),
    progress: Callable[[Iterable, str], Iterable] = lambda items, title: items,
) -> Analysis:
    """Play the demonstrations and measure them.

    levels: the training levels that they are compared with.  held_out: levels that they must not contain.
    progress: wraps what is gone through, given its title.
    Raises DemonstrationError if nothing can be used, LevelSetError for a level that cannot be read, DatasetError.
    """
    known = _known_levels(levels, "levels", progress)
    forbidden = _known_levels(held_out, "held-out levels", progress)
    found, bank, level_index = with_bank(
        load_demonstrations(files, frame_skip, folder=folder, progress=partial(progress, title="playback"))
    )
    demonstrations = found.demonstrations
    symmetric = {level.fingerprint: symmetric_fingerprint(level) for level in bank.levels}
    content = [symmetric[d.level.fingerprint] for d in demonstrations]

    steps = _Steps(demonstrations, bank, level_index, frame_skip, progress)
    tables = predictors(transition_counts(steps.actions, steps.previous))
    categories = sorted({d.category for d in demonstrations})
    of_category = np.array([categories.index(d.category) for d in demonstrations])
    frames = np.array([len(d.inputs) for d in demonstrations])
    entries = {key: entry for key, (entry, _level, _file) in known.items()}
    par = np.array([getattr(entries.get(key), "par_frames", None) or np.nan for key in content])
    way = bank.path_length[steps.level].astype(float)
    pace = frames / np.where((way > 0) & (way < MAX_PATH), way, np.nan)
    leaks = [
        Anomaly(d.name, None, f"is the held-out level {forbidden[key][2]}, as it is or mirrored")
        for d, key in zip(demonstrations, content, strict=True)
        if key in forbidden
    ]
    return Analysis(
        found=found,
        total=steps.group(np.ones(len(demonstrations), bool), tables),
        groups={name: steps.group(of_category == i, tables) for i, name in enumerate(categories)},
        components=tuple(_components(steps.states)),
        frames=frames,
        par=par,
        coverage=_coverage(known, set(content)),
        several=_several(demonstrations),
        mirrored=_mirrored(demonstrations, content),
        same_mirrored=_same_mirrored(demonstrations),
        leaks=tuple(leaks),
        anomalies=_anomalies(files, found, content, entries if levels else None, frames, par, pace, steps.idle()),
    )


class _Steps:
    """Every decision of the demonstrations, one demonstration after the other; N decisions of D demonstrations.

    states: float32[N, 26], observed before the decision.  actions, previous: int64[N].  demonstration: int64[N].
    """

    def __init__(self, demonstrations, bank, level_index, frame_skip, progress):
        self.frame_skip = frame_skip
        self.lengths = np.array([len(d.actions) for d in demonstrations])
        self.first = np.cumsum([0, *self.lengths[:-1]])
        self.demonstration = np.repeat(np.arange(len(demonstrations)), self.lengths)
        self.actions = np.concatenate([d.actions for d in demonstrations])
        self.previous = np.concatenate([previous_actions(d.actions) for d in demonstrations])
        self.level = np.array([level_index[d.level.fingerprint] for d in demonstrations])
        self.states = np.empty((len(self.actions), *layout.SPECS[STATE].shape), np.float32)
        config = DatasetConfig(frame_skip=frame_skip, observations=(STATE,))
        by_length = np.argsort(self.lengths, kind="stable")  # those of a wave end together
        waves = [by_length[start : start + _WAVE] for start in range(0, len(by_length), _WAVE)]
        for wave in progress(waves, "states"):
            played = [demonstrations[i] for i in wave]
            rows = np.concatenate([self.first[i] + np.arange(self.lengths[i]) for i in wave])
            self.states[rows] = record(nppsim.BatchSimulator, bank, self.level[wave], played, config)[STATE]
        reached = (bank.distance[:, 0] < WALL).reshape(-1, NODES_X, NODES_Y)[:, :-1, :-1]
        self.reachable = reached.reshape(len(bank), STAGE[0], 2, STAGE[1], 2).any(axis=(2, 4))
        self.visited = self._visited(len(bank))

    def column(self, name: str) -> np.ndarray:
        """float32[N]: one component of the observation ``state``."""
        return self.states[:, layout.SPECS[STATE].components.index(name)]

    def _tiles(self, x, y):
        return (np.clip(x // TILE, 0, STAGE[0] - 1).astype(int), np.clip(y // TILE, 0, STAGE[1] - 1).astype(int))

    def _visited(self, levels):
        """bool[levels, 44, 25]: tiles on the way, straight from decision to decision."""
        visited = np.zeros((levels, *STAGE), bool)
        x, y = self.column("x"), self.column("y")
        last = np.append(self.demonstration[1:] != self.demonstration[:-1], True)
        ahead = np.where(last, np.arange(len(x)), np.arange(len(x)) + 1)
        for part in (0, 0.25, 0.5, 0.75):
            tiles = self._tiles(x + part * (x[ahead] - x), y + part * (y[ahead] - y))
            visited[self.level[self.demonstration], *tiles] = True
        return visited

    def idle(self) -> np.ndarray:
        """int64[D]: frames of the longest stretch of each demonstration in which the ninja does not move."""
        moved = np.hypot(np.diff(self.column("x")), np.diff(self.column("y"))) >= IDLE_PX
        edges = np.append(True, moved | (np.diff(self.demonstration) != 0))
        starts = np.flatnonzero(edges)
        still = np.diff(np.append(starts, len(edges))) - 1
        longest = np.zeros(len(self.lengths), int)
        np.maximum.at(longest, self.demonstration[starts], still)
        return longest * self.frame_skip

    def group(self, chosen: np.ndarray, tables: dict[str, np.ndarray]) -> Group:
        """chosen: bool[D].  tables: ``predictors``."""
        rows = chosen[self.demonstration]
        actions, previous = self.actions[rows], self.previous[rows]
        begins = np.append(True, (actions[1:] != actions[:-1]) | (np.diff(self.demonstration[rows]) != 0))
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
            positions=np.bincount(row * STAGE[0] + column, minlength=STAGE[0] * STAGE[1]).reshape(STAGE[::-1]),
            speeds=np.bincount(
                ((vy + 2 * FASTEST) * size + vx + 2 * FASTEST).astype(int), minlength=size * size
            ).reshape(size, size),
            visited=seen / np.maximum(reachable.sum(axis=(1, 2)), 1),
        )


def _components(states):
    for name, values in zip(layout.SPECS[STATE].components, states.T, strict=True):
        values = values.astype(np.float64)
        _, counts = np.unique(values, return_counts=True)
        common = counts.max() / len(values)
        yield Component(name, values.min(), values.mean(), values.max(), values.std(), common)


def _known_levels(sets, title, progress) -> dict[str, tuple[LevelEntry, Level, str]]:
    """Content -> (entry, level, file) of the levels of all sets; the first of equal ones."""
    known = {}
    for level_set in sets:
        for i, level in enumerate(progress(level_set, title)):
            entry = level_set.entries[i]
            known.setdefault(symmetric_fingerprint(level), (entry, level, str(level_set.path / entry.file)))
    return known


def _coverage(known, demonstrated) -> dict[str, Coverage]:
    categories: dict[str, list[str]] = {}
    for key, (entry, _level, _file) in known.items():
        categories.setdefault(entry.category, []).append(key)
    coverage = {}
    for category, keys in categories.items():
        levels = [known[key][1] for key in keys]
        lengths = [nppsim.LevelBank(levels[i : i + _CHUNK]).path_length for i in range(0, len(levels), _CHUNK)]
        way = np.concatenate(lengths).astype(float)
        measures = {"way": np.where(way < MAX_PATH, way, np.nan)}
        for name, kinds in (("hazards", HAZARDS), ("doors", (REGULAR_DOOR, LOCKED_DOOR, TRAP_DOOR))):
            measures[name] = np.array([float(np.isin(level.records[:, 0], kinds).sum()) for level in levels])
        coverage[category] = Coverage(np.array([key in demonstrated for key in keys]), measures)
    return coverage


def _grouped(keys, names) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for key, name in zip(keys, names, strict=True):
        groups.setdefault(key, []).append(name)
    return groups


def _several(demonstrations):
    groups = _grouped((d.level.fingerprint for d in demonstrations), (d.name for d in demonstrations))
    return tuple(tuple(names) for names in groups.values() if len(names) > 1)


def _mirrored(demonstrations, content):
    groups = _grouped(content, demonstrations)
    both = (group for group in groups.values() if len({d.level.fingerprint for d in group}) > 1)
    return tuple(tuple(d.name for d in group) for group in both)


def _same_mirrored(demonstrations) -> int:
    """Number of pairs of which one is the mirror image of the other, level and actions."""
    content = {(d.level.fingerprint, d.actions.tobytes()) for d in demonstrations}
    image_of = {d.level.fingerprint: mirror(d.level).fingerprint for d in demonstrations}
    pairs = sum(
        image_of[d.level.fingerprint] != d.level.fingerprint
        and (image_of[d.level.fingerprint], _MIRRORED_ACTION[d.actions].tobytes()) in content
        for d in demonstrations
    )
    return pairs // 2


def _anomalies(files, found, content, entries, frames, par, pace, idle) -> dict[str, tuple[Anomaly, ...]]:
    """entries: content -> LevelEntry of --levels; None without them.  pace: frames per px of way, NaN without a way."""
    kinds: dict[str, list[Anomaly]] = {}

    def add(kind, name, value, detail):
        kinds.setdefault(kind, []).append(Anomaly(name, value, detail))

    for item in found.left_out:
        add(item.reason, item.name, None, item.detail)
    usual = np.nanmedian(pace) if np.isfinite(pace).any() else np.nan
    categories = _grouped((d.category for d in found.demonstrations), frames.tolist())
    median = {name: np.median(group) for name, group in categories.items()}
    fastest = {key: min(group) for key, group in _grouped(content, frames.tolist()).items()}
    for i, (d, key) in enumerate(zip(found.demonstrations, content, strict=True)):
        if idle[i] >= IDLE_FRAMES:
            add(IDLE, d.name, int(idle[i]), f"{idle[i]} frames on end without moving, of {frames[i]}")
        if frames[i] > SLOW * par[i]:
            ratio = frames[i] / par[i]
            add(SLOWER_THAN_PAR, d.name, ratio, f"{frames[i]} frames, {ratio:.1f} times par ({par[i]:.0f})")
        if pace[i] > SLOW_WAY * usual:
            detail = f"{frames[i]} frames for {frames[i] / pace[i]:.0f} px, {pace[i] / usual:.1f} times the usual"
            add(SLOW_FOR_ITS_WAY, d.name, pace[i] / usual, detail)
        if frames[i] > LONG_FOR_CATEGORY * median[d.category]:
            detail = f"{frames[i]} frames, the median of {d.category} is {median[d.category]:.0f}"
            add(LONG_FOR_ITS_CATEGORY, d.name, frames[i] / median[d.category], detail)
        if frames[i] > SLOW * fastest[key]:
            ratio = frames[i] / fastest[key]
            add(SLOWER_THAN_OTHERS, d.name, ratio, f"{frames[i]} frames, the fastest on this level {fastest[key]}")
        if d.retimed and d.deviation_px > LARGE_DEVIATION_PX:
            add(RETIMED_FAR, d.name, d.deviation_px, f"{d.deviation_px:.1f} px from the recording on average")
        if entries is not None and key not in entries:
            add(NOT_IN_LEVELS, d.name, None, f"category {d.category}")
        elif entries is not None and entries[key].category != d.category:
            add(OTHER_CATEGORY, d.name, None, f"{d.category} here, {entries[key].category} in the level set")
    _file_anomalies(files, found, add)
    order = {kind: sorted(items, key=lambda item: -(item.value or 0)) for kind, items in kinds.items()}
    return {kind: tuple(items) for kind, items in sorted(order.items(), key=lambda pair: -len(pair[1]))}


def _file_anomalies(files, found, add) -> None:
    """What can be seen only in the files of the demonstrations kept, as these are cut at the win and cleaned."""
    kept = {d.name: d for d in found.demonstrations}
    for file in files:
        if file.name not in kept:
            continue
        replay, d = Replay.from_bytes(file.data, file.path), kept[file.name]
        won = nppsim.simulate(replay.level, replay.inputs).frames if d.retimed else len(d.inputs)
        if replay.frames > won:
            add(AFTER_WIN, d.name, replay.frames - won, f"{replay.frames - won} inputs after the win at frame {won}")
        both = int((replay.inputs[:won] & (LEFT | RIGHT) == LEFT | RIGHT).sum())
        if both:
            add(BOTH_HELD, d.name, both, f"{both} frames with input byte 6 or 7, taken as left")
        for warning in replay.warnings:
            add(DEFECT, d.name, None, warning)


# ---------------------------------------------------------------------------------------------------------------------
# Findings

_HIGHEST = {"way": "a longer way", "hazards": "more hazards", "doors": "more doors"}


def _findings(analysis: Analysis):
    total = analysis.total
    count = len(total.lengths)
    if analysis.leaks:
        yield Finding(
            True,
            f"LEAK: {len(analysis.leaks)} of {count} demonstrations are of held-out levels; success there would measure "
            f"memory (first: {analysis.leaks[0].name}). Remove these files, or hold out other levels",
        )
    if analysis.found.left_out:
        lost = len(analysis.found.left_out)
        yield Finding(False, f"{lost} of {count + lost} replays cannot be used; the reasons are under Anomalies")
    yield from _coverage_findings(analysis.coverage)
    never = [name for name, times in zip(ACTION_NAMES, total.actions, strict=True) if times == 0]
    if never:
        yield Finding(False, f"never taken: {', '.join(never)}; a clone cannot learn it")
    constant = [c.name for c in analysis.components if c.constant]
    nearly = [c.name for c in analysis.components if not c.constant and c.common > NEARLY_CONSTANT]
    for names, text in ((constant, "never varies"), (nearly, f"has one value in over {NEARLY_CONSTANT:.1%}")):
        if names:
            yield Finding(
                False, f"{len(names)} of {len(analysis.components)} components of state: {text}: {', '.join(names)}"
            )
    repeated = total.baselines["repeat_previous"].accuracy
    yield Finding(
        False,
        f"repeating the previous action is right in {repeated:.1%} of the decisions: judge a clone by its accuracy on "
        "changes",
    )
    several = len(analysis.several)
    if several:
        yield Finding(False, f"{several} levels have several demonstrations, up to {max(map(len, analysis.several))}")
    if analysis.mirrored:
        yield Finding(
            False,
            f"{len(analysis.mirrored)} levels are there with their mirror image; {analysis.same_mirrored} pairs have "
            "mirrored actions too, which adds nothing where training mirrors the demonstrations itself",
        )
    left_out = {item.reason for item in analysis.found.left_out}
    for kind, items in analysis.anomalies.items():
        if kind not in left_out:
            yield Finding(
                False, f"{kind}: {len(items)} of {count} demonstrations, e.g. {items[0].name}: {items[0].detail}"
            )


def _coverage_findings(coverage):
    for category, c in coverage.items():
        number = len(c.demonstrated)
        if not c.demonstrated.any():
            yield Finding(False, f"{category}: none of {number} levels has a demonstration")
            continue
        if c.demonstrated.all():
            continue
        yield Finding(
            False, f"{category}: {c.demonstrated.sum()} of {number} levels have a demonstration ({c.share:.1%})"
        )
        for measure in c.measures:
            if beyond := c.beyond(measure):
                text = f"{category}: {beyond} of {number} levels have {_HIGHEST[measure]} than any with a demonstration"
                yield Finding(False, text)
        quarters = c.quarters("way")
        if quarters and quarters[-1] < PARTLY * max(quarters):
            shares = ", ".join(f"{share:.0%}" for share in quarters)
            yield Finding(
                False,
                f"{category}: demonstrations cover the long levels less: {shares} of the quarters from short to long way",
            )
