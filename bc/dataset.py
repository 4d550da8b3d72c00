"""Imitation dataset: the observation before each decision of a demonstration, and the action.

The demonstrations are played in the ``BatchSimulator`` of reinforcement learning, so the observations are identical.
Images are not stored but rendered from simulator states (``bc.images``).  The HDF5 file is a cache, whose layout is in
``docs/file_formats.md``.  Its name is a digest of the replays, the settings, the observation layout and the source code.
"""

import hashlib
import io
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import h5py
import numpy as np

import nppsim
from bc.dataset_file import (
    DECISIONS,
    DEMONSTRATIONS,
    FORMAT_VERSION,
    LIBRARY,
    REBUILD,
    DatasetError,
    make_samples,
    read_about,
    read_column,
    read_levels,
    write_levels,
    write_tables,
)
from bc.demonstrations import (
    Demonstration,
    DemonstrationSet,
    ExcludedReplay,
    Paths,
    ReplayFile,
    find_replays,
    load_demonstrations,
    paths_text,
)
from bc.images import StoredImages
from nppsim._numba.cache import KERNEL_DIGEST
from nppsim.actions import ACTION_NAMES, FRAME_SKIP, FRAMES_PER_SECOND, NUM_ACTIONS
from nppsim.bank import LevelBank
from nppsim.batch import BatchSimulator
from nppsim.compile import LevelGeometry
from nppsim.errors import ConfigError
from nppsim.io import hdf5
from nppsim.io.files import write_bytes
from nppsim.levels.level import Level, symmetric_fingerprint
from nppsim.observe import layout
from nppsim.observe.foresight_settings import FORESIGHT, Foresight
from nppsim.observe.graph import register_bank
from nppsim.observe.stacking import NO_STACKS, Stacking, frames_back
from nppsim.observe.statistics import ObservationStatistics
from nppsim.parallel.workers import usable_memory
from nppsim.settings import check_settings, setting

STATES = "states"  # column of simulator states, from which images are rendered
GRAPH = "graph_state"  # observation that refers to levels; a file with it also contains the levels
MEMORY_SHARE = 0.7  # maximum share of the available memory for a dataset; the rest is for the network and its gradients
_BATCH_BYTES = 256 << 20  # maximum bytes of the observations that are recorded together
# Source files, in addition to the kernels, that invalidate cached datasets when they change.
_NPPSIM = Path(nppsim.__file__).parent
_CODE = (
    Path(__file__),
    Path(__file__).with_name("dataset_file.py"),
    Path(__file__).with_name("demonstrations.py"),
    _NPPSIM / "batch.py",
    *sorted(_NPPSIM.glob("levels/*.py")),
    *sorted(_NPPSIM.glob("planner/*.py")),
    *sorted(_NPPSIM.glob("replays/*.py")),
)


@dataclass(frozen=True)
class DatasetConfig:
    """Settings of a dataset.  ``observations`` accepts keys and short names."""

    frame_skip: int = setting(
        FRAME_SKIP, "frames (1/60 s) per decision", flag="frame-skip", low=1, high=FRAMES_PER_SECOND
    )
    observations: tuple[str, ...] = layout.VISION_FREE
    foresight: Foresight = FORESIGHT
    validation_share: float = setting(
        0.1, "share of each category's levels that is used for validation instead of training", above=0, below=1
    )
    seed: int = setting(0, "random seed for the choice of validation levels and replays", low=0)
    mirror: bool = setting(False, "also train on the mirror image of each replay", flag="mirror-demonstrations")
    max_per_category: int | None = setting(
        None,
        "maximum number of replays per category, drawn at random; mirror images do not count (default: all replays)",
        flag="max-demonstrations-per-category",
        low=1,
    )

    def __post_init__(self) -> None:
        check_settings(self)
        try:
            object.__setattr__(self, "observations", layout.observation_keys(self.observations))
        except ValueError as error:
            raise ConfigError(str(error), "observations", self.observations) from error


def load_or_build(
    folder: Paths,
    cache_folder: str | Path,
    config: DatasetConfig | None = None,
    *,
    held_back: Iterable[Level] = (),
    known: Mapping[Level, LevelGeometry] = MappingProxyType({}),
    log: Callable[[str], None] = print,
    progress: Callable[[Sequence[ReplayFile]], Iterable[ReplayFile]] = iter,
) -> "BCDataset":
    """Load the dataset made from some replays from the cache, or build and cache it.

    folder: one or several folders of replays, or replay sets.
    held_back: evaluation levels; replays of them and of their mirror images are excluded.
    known: geometry of levels that are compiled already.
    log: function that prints the tables of used and excluded replays.
    progress: function that wraps the replays during playback, e.g. to show a progress bar.
    Raises DemonstrationError without usable replays, and DatasetError for a damaged or too large dataset.
    """
    config = config or DatasetConfig()
    files = find_replays(folder)
    unwanted = _with_mirrored(held_back)
    key = content_key(files, config, unwanted)
    path = Path(cache_folder) / f"demonstrations-{key}.h5"
    if path.exists():
        log(f"demonstrations of {paths_text(folder)}: using {path}")
        dataset = BCDataset.open(path)
        if dataset.key != key:
            raise DatasetError(f"{path}: has key {dataset.key}, which differs from the key in its name; {REBUILD}")
        log(dataset.report)
        return dataset
    demonstrations = _load(files, folder, config, unwanted, known, progress)
    bank = write_dataset(path, demonstrations, config, key)
    dataset = BCDataset.open(path, bank=bank)
    log(dataset.report)
    return dataset


def check_demonstrations(
    folder: Paths,
    config: DatasetConfig,
    *,
    held_back: Iterable[Level] = (),
    held_out: Iterable[Level] = (),
    known: Mapping[Level, LevelGeometry] = MappingProxyType({}),
    log: Callable[[str], None] = print,
    progress: Callable[[Sequence[ReplayFile]], Iterable[ReplayFile]] = iter,
) -> None:
    """Play the replays of ``load_or_build`` back and raise its errors, without recording observations.

    held_out: levels of which there must be no demonstration (``BCDataset.check_held_out``).
    """
    demonstrations = _load(find_replays(folder), folder, config, _with_mirrored(held_back), known, progress)
    prepared = _prepare(folder, demonstrations, config)
    names = [demonstration.name for demonstration in prepared.demonstrations]
    _check_held_out(names, [demonstration.level.fingerprint for demonstration in prepared.demonstrations], held_out)
    log(prepared.found.table())


def _with_mirrored(levels: Iterable[Level]) -> frozenset[str]:
    """Return the fingerprints of levels and of their mirror images."""
    return frozenset(fingerprint for level in levels for fingerprint in (level.fingerprint, level.mirrored_fingerprint))


def _load(
    files: Sequence[ReplayFile],
    folder: Paths,
    config: DatasetConfig,
    held_back: frozenset[str],
    known: Mapping[Level, LevelGeometry],
    progress: Callable[[Sequence[ReplayFile]], Iterable[ReplayFile]],
) -> DemonstrationSet:
    return load_demonstrations(
        files,
        config.frame_skip,
        folder=folder,
        mirror=config.mirror,
        max_per_category=config.max_per_category,
        seed=config.seed,
        held_back=held_back,
        known=known,
        progress=progress,
    )


def content_key(files: Sequence[ReplayFile], config: DatasetConfig, held_back: Collection[str] = ()) -> str:
    """Return a hex digest (16 characters) of everything that determines the content of a dataset.

    held_back: fingerprints of excluded levels.
    """
    settings = asdict(config) | {
        "format": FORMAT_VERSION,
        "layout": layout.fingerprint(config.observations, config.foresight.name),
        "sources": KERNEL_DIGEST,
        "code": [hashlib.sha256(path.read_bytes()).hexdigest() for path in _CODE],
        "replays": sorted((file.name, file.category, file.digest) for file in files),
        "held_back": sorted(held_back),
    }
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def write_dataset(path: str | Path, found: DemonstrationSet, config: DatasetConfig, key: str) -> LevelBank:
    """Record the demonstrations and write the HDF5 file atomically; return the bank of levels.

    The demonstrations are stored by ascending length.  Demonstrations longer than the time limit of their level are excluded.
    Raises DatasetError if the dataset is too large or its levels cannot be split.  Raises DemonstrationError if no
    demonstration is left.
    """
    found, bank, level_index, demonstrations, columns, validation = _prepare(path, found, config)
    bytes_each = sum(column.itemsize for column in columns.values())
    decisions = sum(len(d.actions) for d in demonstrations)
    image = io.BytesIO()  # in memory, compressed: HDF5 crashes when it writes to a full disk
    with h5py.File(image, "w", libver=LIBRARY) as file:
        write_tables(file, demonstrations, validation, found, asdict(config), key)
        make_samples(file, columns, decisions)
        if STATES in columns or GRAPH in columns:
            write_levels(file, bank.levels)
        row = 0
        for batch in _batches(demonstrations, _BATCH_BYTES // bytes_each):
            recorded = record(bank, [level_index[d.level] for d in batch], batch, config)
            for name, values in recorded.items():
                file["observations"][name][row : row + len(values)] = values
            row += sum(len(d.actions) for d in batch)
    write_bytes(path, image.getbuffer())
    return bank


class _Prepared(NamedTuple):
    """What a dataset is recorded from.

    bank: levels of the demonstrations.  level_index: level -> index in ``bank``.
    demonstrations: in the order of the dataset.
    columns: see ``sample_columns``.
    validation: bool[demonstrations], see ``split_by_level``.
    """

    found: DemonstrationSet
    bank: LevelBank
    level_index: dict[Level, int]
    demonstrations: list[Demonstration]
    columns: dict[str, np.dtype]
    validation: np.ndarray


def _prepare(path: Paths, found: DemonstrationSet, config: DatasetConfig) -> _Prepared:
    """Check the demonstrations of a dataset.  path: for messages.  Raises the errors of ``write_dataset``."""
    found, bank, level_index = with_bank(found)
    columns = sample_columns(config.observations, BatchSimulator(bank, 1).snapshot(0).size)
    demonstrations = sorted(found.demonstrations, key=lambda d: len(d.actions))
    decisions = sum(len(d.actions) for d in demonstrations)
    check_memory(paths_text(path), decisions, sum(column.itemsize for column in columns.values()))
    validation = split_by_level(demonstrations, config.validation_share, config.seed)
    return _Prepared(found, bank, level_index, demonstrations, columns, validation)


def sample_columns(keys: Sequence[str], state_bytes: int) -> dict[str, np.dtype]:
    """Return the stored columns by name, with the dtype of one row.

    Images are not stored; the column STATES replaces them.
    """
    columns = {
        key: np.dtype((layout.SPECS[key].dtype, layout.SPECS[key].shape)) for key in keys if key not in layout.IMAGES
    }
    return columns if len(columns) == len(keys) else columns | {STATES: np.dtype((np.uint8, (state_bytes,)))}


def record(
    bank: LevelBank, levels: Sequence[int], batch: Sequence[Demonstration], config: DatasetConfig
) -> dict[str, np.ndarray]:
    """Play demonstrations and return their columns (see ``sample_columns``), concatenated.

    levels: index in ``bank`` of the level of each demonstration.
    batch: the demonstrations, which are played together.
    """
    observed = tuple(key for key in config.observations if key not in layout.IMAGES) or config.observations
    sim = BatchSimulator(
        bank, len(batch), frame_skip=config.frame_skip, observations=observed, foresight=config.foresight
    )
    sim.reset(np.array(levels))
    lengths = np.array([len(d.actions) for d in batch])
    first = np.concatenate([[0], np.cumsum(lengths)])
    columns = sample_columns(config.observations, sim.snapshot(0).size)
    recorded = {name: np.empty((first[-1], *column.shape), column.base) for name, column in columns.items()}
    actions = np.zeros((len(batch), lengths.max()), np.int64)
    for i, demonstration in enumerate(batch):
        actions[i, : lengths[i]] = demonstration.actions
    for t in range(int(lengths.max())):
        active = np.flatnonzero(lengths > t)
        for name, values in recorded.items():
            values[first[active] + t] = sim.snapshot(active) if name == STATES else sim.obs[name][active]
        sim.step(actions[:, t], asleep=lengths <= t)
    return recorded


def split_by_level(demonstrations: Sequence[Demonstration], share: float, seed: int) -> np.ndarray:
    """Split demonstrations by level; return bool[D], True for validation.

    A level and its mirror image are in the same part, and each part has at least one level.
    share: share of the levels that is used for validation, about equal in all categories.
    seed: random seed for the choice of levels.
    """
    content = {level: symmetric_fingerprint(level) for level in {d.level for d in demonstrations}}
    fingerprints = [content[d.level] for d in demonstrations]
    category_of = {f: d.category for f, d in reversed(list(zip(fingerprints, demonstrations, strict=True)))}
    count = len(category_of)
    if count < 2:
        raise DatasetError(
            f"{len(demonstrations)} demonstrations of {count} level cannot be split by level into training "
            "and validation; add demonstrations of other levels"
        )

    def by_category_then_chance(fingerprint: str) -> tuple[str, bytes]:
        return category_of[fingerprint], hashlib.sha256(f"{seed} {fingerprint}".encode()).digest()

    ordered = sorted(category_of, key=by_category_then_chance)
    wanted = min(max(1, round(share * count)), count - 1)
    chosen = {ordered[int((k + 0.5) * count / wanted)] for k in range(wanted)}
    return np.array([fingerprint in chosen for fingerprint in fingerprints])


def check_memory(path: str | Path, samples: int, per_sample: int, available_bytes: int | None = None) -> int:
    """Return the size in bytes of ``samples`` decisions of ``per_sample`` bytes each.

    available_bytes: available memory; None: the free memory.
    Raises DatasetError if the size exceeds MEMORY_SHARE of the available memory.
    """
    needed = samples * per_sample
    available = usable_memory()[1] if available_bytes is None else available_bytes
    if needed > MEMORY_SHARE * available:
        raise DatasetError(
            f"{path}: {samples} decisions of {per_sample} bytes need {needed / 1e9:.2f} GB, more than "
            f"{MEMORY_SHARE:.0%} of the {available / 1e9:.2f} GB available; use fewer demonstrations "
            "(in training: --max-demonstrations-per-category N, no --mirror-demonstrations), a larger frame skip, "
            "or a machine with more memory"
        )
    return needed


def _check_held_out(names: Sequence[str], fingerprints: Sequence[str], levels: Iterable[Level]) -> None:
    """Raise DatasetError if demonstrations, with these names and levels, are of ``levels`` or of their mirror images."""
    held_out = {
        fingerprint: level.name for level in levels for fingerprint in (level.fingerprint, level.mirrored_fingerprint)
    }
    leaked = [i for i, level in enumerate(fingerprints) if level in held_out]
    if leaked:
        raise DatasetError(
            f"{len(leaked)} of {len(names)} demonstrations are of evaluation levels or their mirror images, "
            f"e.g. {names[leaked[0]]} of {held_out[fingerprints[leaked[0]]]}; success there "
            "would measure memorisation. Remove these demonstrations (listed by python -m bc report --held-out), or "
            "evaluate on other levels"
        )


@dataclass(frozen=True, eq=False)
class BCDataset:
    """Dataset in memory: S decisions of D demonstrations.

    key: digest of the content (``content_key``).
    observations: key -> array [S, ...] in raw units, without images.
    actions, previous_actions: int8[S], action of each decision, and the action before it.  The action before the first
        decision of a demonstration is no-op.
    demonstration: int32[S], index of the demonstration that contains the decision.
    categories: names of the categories.
    names, level_fingerprints: D strings each.
    category: int16[D], category of each demonstration, as an index into ``categories``.
    validation: bool[D], True for demonstrations of validation levels.
    selection: table of used and excluded replays (``DemonstrationSet.table``).
    images: renderer of image observations; None without image observations.
    bank: the levels; None if there are neither images nor graphs.
    stacking: number of frames per observation.
    """

    path: str
    key: str
    frame_skip: int
    observations: dict[str, np.ndarray]
    actions: np.ndarray
    previous_actions: np.ndarray
    demonstration: np.ndarray
    categories: tuple[str, ...]
    names: tuple[str, ...]
    level_fingerprints: tuple[str, ...]
    category: np.ndarray
    validation: np.ndarray
    selection: str
    images: StoredImages | None = None
    bank: LevelBank | None = None
    stacking: Stacking = NO_STACKS

    @classmethod
    def open(cls, path: str | Path, bank: LevelBank | None = None) -> "BCDataset":
        """Read a dataset file into memory.

        bank: the levels of the file, if the caller has compiled them already.
        Raises DatasetError for a file that is missing, damaged, too large, or of another observation layout.
        """
        path = Path(path)
        if not path.is_file():
            raise DatasetError(f"{path}: no such file; build it with scripts/pretrain_bc.py")

        def damaged(reason: str) -> DatasetError:
            return DatasetError(f"{path}: no readable dataset ({reason}); {REBUILD}")

        with hdf5.reading(path, damaged, limit_bytes=1 << 62) as file:  # no limit here, as check_memory limits the size
            return cls._read(path, file, bank)

    @classmethod
    def _read(cls, path: Path, file: h5py.File, bank: LevelBank | None) -> "BCDataset":
        about = read_about(path, file)
        keys = tuple(about["observation_keys"])
        stored, rows, demonstrations = file["observations"], len(file["actions"]), len(about["names"])
        drawn = tuple(key for key in keys if key in layout.IMAGES)
        columns = sample_columns(keys, stored[STATES].shape[-1] if drawn else 0)
        check_memory(path, rows, sum(column.itemsize for column in columns.values()))
        observations = {name: read_column(stored, name, rows, column) for name, column in columns.items()}
        decisions = {name: read_column(file, name, rows, dtype) for name, dtype in DECISIONS.items()}
        table = {
            name: read_column(file["demonstrations"], name, demonstrations, dtype)
            for name, dtype in DEMONSTRATIONS.items()
        }
        for values, limit in (
            (decisions["actions"], NUM_ACTIONS),
            (decisions["previous_actions"], NUM_ACTIONS),
            (decisions["demonstration"], demonstrations),
            (table["category"], len(about["categories"])),
        ):
            if not len(values) or values.min() < 0 or values.max() >= limit:
                raise ValueError(f"numbers outside 0 to {limit - 1} in a column, or an empty column")
        images = None
        if drawn or GRAPH in keys:
            given, bank = bank, bank or LevelBank(read_levels(file))
            register_bank(bank)
            images = StoredImages(bank, observations.pop(STATES), drawn) if drawn else None
            if images and given is None:  # another program may have written the file
                images.check()
        return cls(
            path=str(path),
            key=about["key"],
            frame_skip=about["frame_skip"],
            observations=observations,
            **decisions,
            categories=tuple(about["categories"]),
            names=tuple(about["names"]),
            level_fingerprints=tuple(about["level_fingerprints"]),
            category=table["category"],
            validation=table["validation"],
            selection=about["report"],
            images=images,
            bank=bank if drawn or GRAPH in keys else None,
            stacking=NO_STACKS,
        )

    def __len__(self) -> int:
        return len(self.actions)

    @property
    def nbytes(self) -> int:
        """Size of observations and simulator states in bytes."""
        return sum(v.nbytes for v in self.observations.values()) + (self.images.states.nbytes if self.images else 0)

    def stacked(self, stacking: Stacking) -> "BCDataset":
        """Return the same dataset with frame stacking; both share their memory."""
        return replace(self, stacking=stacking)

    def observe(self, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Return the observations of some rows: key -> array [len(rows), ...], or [len(rows), frames, ...] if stacked."""
        drawn = self.images.keys if self.images else ()
        observations: dict[str, np.ndarray] = {}
        for frames in {self.stacking.frames(key) for key in (*self.observations, *drawn)}:
            sources, padded = self._stacked_rows(rows, frames)
            part = {k: values[sources] for k, values in self.observations.items() if self.stacking.frames(k) == frames}
            if self.images and self.stacking.visual == frames:
                part |= self.images.draw(sources)
            if self.stacking.padding == "zero":
                for values in part.values():
                    values[padded] = 0
            observations |= {key: values.reshape(len(rows), *self.stacking.shape(key)) for key, values in part.items()}
        return observations

    def _stacked_rows(self, rows: np.ndarray, frames: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the rows int64[n * frames] of stacked frames, oldest first, and bool[n * frames], True for padding."""
        age = rows - self._first[self.demonstration[rows]]
        back, padded = frames_back(np.arange(frames - 1, -1, -1), age[:, None])
        return (rows[:, None] - back).ravel(), padded.ravel()

    @cached_property
    def _first(self) -> np.ndarray:
        """First row of each demonstration, int64[D]."""
        lengths = np.bincount(self.demonstration, minlength=len(self.names))
        return np.cumsum(lengths) - lengths

    def check_held_out(self, levels: Iterable[Level]) -> None:
        """Raise DatasetError if there is a demonstration of an evaluation level or of its mirror image."""
        _check_held_out(self.names, self.level_fingerprints, levels)

    def runs(self) -> dict[str, np.ndarray]:
        """Return the actions of the shortest demonstration of each level: fingerprint -> int8[n]."""
        ends = np.cumsum(np.bincount(self.demonstration, minlength=len(self.names)))[:-1]
        each = np.split(self.actions, ends)
        longest_first = sorted(zip(self.level_fingerprints, each, strict=True), key=lambda pair: -len(pair[1]))
        return {level: actions.copy() for level, actions in longest_first}

    def rows(self, validation: bool) -> np.ndarray:
        """Return the rows int64[n] of the training or of the validation part."""
        return np.flatnonzero(self.validation[self.demonstration] == validation)

    def action_histogram(self, rows: np.ndarray | None = None) -> np.ndarray:
        """Count each action in ``rows`` (None: in all rows), int64[6]."""
        return np.bincount(self.actions if rows is None else self.actions[rows], minlength=NUM_ACTIONS)

    def class_weights(self, power: float) -> np.ndarray:
        """Return a weight for each action, float32[6]: (1 / frequency)**power, with mean 1 over the training part.

        power: with 0, all weights are 1; with 1, all actions have the same total weight.
        An action that does not occur counts as if it occurred once.
        Raises DatasetError if the training part is empty.
        """
        histogram = self.action_histogram(self.rows(validation=False))
        if not histogram.any():
            raise DatasetError(
                f"{self.path}: all demonstrations are for validation; give demonstrations of more levels"
            )
        weights = (1 / np.maximum(histogram, 1)) ** power
        return (weights / np.average(weights, weights=histogram)).astype(np.float32)

    def statistics(self, batch: int = 4096) -> ObservationStatistics:
        """Compute means and standard deviations of the training part, for the normaliser of the policy."""
        rows = self.rows(validation=False)
        statistics = ObservationStatistics((*self.observations, *(self.images.keys if self.images else ())))
        for start in range(0, len(rows), batch):
            part = rows[start : start + batch]
            statistics.update({key: self.observations[key][part] for key in statistics.float_keys})
        return statistics

    @property
    def report(self) -> str:
        """Text for printing: used and excluded replays, sizes of training and validation part, and shares of the actions."""
        sizes = []
        for validation in (False, True):
            levels = {self.level_fingerprints[i] for i in np.flatnonzero(self.validation == validation)}
            sizes.append(f"{len(self.rows(validation))} decisions of {len(levels)} levels")
        histogram = self.action_histogram() / len(self)
        actions = ", ".join(f"{name} {share:.1%}" for name, share in zip(ACTION_NAMES, histogram, strict=True))
        return (
            f"{self.selection}\n{self.nbytes / 1e6:.1f} MB; training: {sizes[0]}; validation: {sizes[1]}\n"
            f"actions: {actions}"
        )


def with_bank(found: DemonstrationSet) -> tuple[DemonstrationSet, LevelBank, dict[Level, int]]:
    """Exclude demonstrations longer than the time limit; return the set, the bank of levels, and each level's index in it.

    Raises DemonstrationError if no demonstration is left.
    """
    level_index = {
        level: i for i, level in enumerate(dict.fromkeys(d.level for d in found.require_some().demonstrations))
    }
    bank = LevelBank(list(level_index), known=found.compiled)
    used, excluded = [], list(found.excluded)
    for d in found.demonstrations:
        limit = int(bank.time_limit[level_index[d.level]])
        if (len(d.actions) - 1) * found.frame_skip < limit:  # an episode is truncated only after a decision
            used.append(d)
        else:
            detail = f"{len(d.inputs)} frames, the level's time limit is {limit}"
            excluded.append(ExcludedReplay(d.name, d.category, "longer than the time limit", detail, d.mirrored))
    return replace(found, demonstrations=tuple(used), excluded=tuple(excluded)).require_some(), bank, level_index


def _batches(demonstrations: Iterable[Demonstration], limit: int) -> Iterator[list[Demonstration]]:
    """Yield consecutive groups of at most ``limit`` decisions; a longer demonstration is a group of its own."""
    batch: list[Demonstration] = []
    rows = 0
    for demonstration in demonstrations:
        if batch and rows + len(demonstration.actions) > limit:
            yield batch
            batch, rows = [], 0
        batch.append(demonstration)
        rows += len(demonstration.actions)
    yield batch
