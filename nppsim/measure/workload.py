"""Workloads of the benchmarks: levels with actions or inputs, prepared before any timing.

    settings = WorkloadSettings(envs=256, rounds=20, iterations=500)
    workload = random_play(generated_levels("simple", 40, seed=42), settings, "simple levels")   # actions
    workload = recorded_play("datasets/demonstrations", settings)
    plays = trace_plays("traces.h5")                                            # inputs, frame by frame

A row of a workload is one decision of every environment.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from nppsim.actions import ACTION_INPUT, FRAME_SKIP, FRAMES_PER_SECOND, NUM_ACTIONS
from nppsim.bank import LevelBank
from nppsim.batch import BatchSimulator
from nppsim.errors import ConfigError
from nppsim.generate import generate
from nppsim.levels import kinds
from nppsim.levels.level import TYPE, UNSUPPORTED, Level
from nppsim.levels.level_set import LevelSet, LevelSetError
from nppsim.levels.stage import COLUMNS, ROWS
from nppsim.levels.tiles import NUM_TILE_SHAPES
from nppsim.measure.player import DecisionPlayer
from nppsim.measure.timing import TimingError
from nppsim.observe import layout
from nppsim.replays.playback import find_files, read_file
from nppsim.replays.replay import ReplayError
from nppsim.settings import check_settings, setting
from nppsim.simulate import simulate
from nppsim.verify import cases

MAX_BYTES = 2**31  # maximum bytes of a workload's arrays
BYTES_PER_ACTION = 12  # bytes of an int64 action and an int32 next level
# Entity types that ``random_levels`` draws; exits and doors with switches are placed separately.
RANDOM_TYPES = tuple(sorted(set(kinds.CREATING) - set(kinds.PAIRED) - set(kinds.COMPLETIONS)))
RANDOM_FRAMES = 1200  # frames of random inputs in a ``Play`` (20 s), after which the level restarts


@dataclass(frozen=True)
class WorkloadSettings:
    """Size and settings of a workload."""

    envs: int = setting(256, "environments stepped together", aliases=("num-envs",), low=1)
    frame_skip: int = setting(FRAME_SKIP, "frames per decision", low=1, high=FRAMES_PER_SECOND)
    observations: tuple[str, ...] = setting(layout.VISION_FREE, "observations to compute, as short names or keys")
    threads: int = setting(1, "threads of the simulator", low=1)
    iterations: int = setting(500, "decisions per environment and round", low=1)
    rounds: int = setting(20, "timed rounds", low=2)
    warmup: int = setting(2000, "decisions per environment before the first timed round", low=0)
    seed: int = setting(42, "random seed of levels, actions and the order of recordings", aliases=("seeds",), low=0)

    def __post_init__(self) -> None:
        check_settings(self)
        try:
            object.__setattr__(self, "observations", layout.observation_keys(self.observations))
        except ValueError as error:
            raise ConfigError(str(error), "observations", self.observations) from error
        needed = self.rows * self.envs * BYTES_PER_ACTION
        if needed > MAX_BYTES:
            raise TimingError(
                f"the actions of {self.rows:,} decisions of {self.envs} environments need {needed / 2**30:.1f} GiB; "
                f"at most {MAX_BYTES / 2**30:.0f} GiB are allowed: lower 'iterations', 'rounds', 'warmup' or 'envs'"
            )

    @property
    def rows(self) -> int:
        """Decisions per environment, including the warm-up."""
        return self.warmup + self.iterations * self.rounds


@dataclass(frozen=True)
class Workload:
    """Levels, and the arguments of a ``DecisionPlayer`` that plays on them."""

    bank: LevelBank
    settings: WorkloadSettings
    start: np.ndarray  # int32[N]: level of each environment at the start
    actions: np.ndarray  # int64[T, N]
    next_level: np.ndarray  # int32[T, N]: level that is loaded if an episode ends in that row
    source: str  # description of the levels and actions
    notes: tuple[str, ...] = ()  # messages on replays that were left out

    def player(self, *, profile: bool = False, shadow: bool = False) -> DecisionPlayer:
        """Return a new simulator that is ready to play the workload.

        profile: measure phases.  shadow: compare each step with the reference implementation (``nppsim.shadow``).  The
            environment variables for these are ignored.
        """
        settings = self.settings
        simulator = BatchSimulator(
            self.bank,
            settings.envs,
            frame_skip=settings.frame_skip,
            observations=settings.observations,
            threads=settings.threads,
            profile=profile,
            shadow=shadow,
        )
        return DecisionPlayer(simulator, self.actions, self.next_level, self.start)

    @property
    def key(self) -> dict:
        """Identity of the workload: settings, and digests of levels and actions; workloads with equal keys are equal."""
        levels = hashlib.sha256("".join(level.fingerprint for level in self.bank.levels).encode()).hexdigest()[:16]
        actions = hashlib.sha256(b"".join(a.tobytes() for a in (self.start, self.actions, self.next_level)))
        digests = {"source": self.source, "levels": levels, "actions": actions.hexdigest()[:16]}
        return asdict(self.settings) | {"observations": list(self.settings.observations)} | digests

    @property
    def coverage(self) -> dict[str, int]:
        """Entity type name -> number of entities of this type in all levels."""
        types = Counter(int(kind) for level in self.bank.levels for kind in level.records[1:, TYPE])
        names = kinds.ENTITY_NAMES
        return {names[kind]: count for kind, count in sorted(types.items()) if kind < len(names)}


@dataclass(frozen=True)
class Play:
    """A level and inputs, uint8[frames].  The level restarts at the end of the inputs, at a death and at a win."""

    level: Level
    inputs: np.ndarray


# ---------------------------------------------------------------------------------------------------------------------
# Levels


def generated_levels(category: str, count: int, seed: int) -> list[Level]:
    """Generate levels of a category with the seeds ``seed``, ``seed + 1``, ..."""
    return [generate(category, seed + k)[0] for k in range(count)]


def random_levels(count: int, seed: int, *, density: float, entity_density: float = 0.02) -> list[Level]:
    """Make levels of random tiles and entities; their exits may be unreachable.

    density: share of the tiles that are not open; the shapes of these tiles are random.
    entity_density: entities per tile; their types are drawn from ``RANDOM_TYPES``.
    Every level also has an exit, a locked door and a trap door with their switches.
    """
    if not (0 <= density < 1 and 0 <= entity_density <= 0.2):
        raise TimingError(f"density {density} must be in [0, 1) and entity density {entity_density} in [0, 0.2]")
    rng = np.random.default_rng(seed)
    levels = []
    for k in range(count):
        filled = rng.random((ROWS, COLUMNS)) < density
        tiles = np.where(filled, rng.integers(1, NUM_TILE_SHAPES, (ROWS, COLUMNS)), 0).astype(np.uint8)
        tiles[10:13, 20:23] = 0  # open space around the spawn

        def place() -> tuple[int, int]:
            return int(rng.integers(6, 170)), int(rng.integers(6, 94))  # steps of 6 px, inside the stage's border

        others = [
            (int(kind), *place(), int(rng.integers(8)), int(rng.integers(4)))
            for kind in rng.choice(RANDOM_TYPES, round(entity_density * tiles.size))
        ]
        locked, trap = [[(place(), place(), int(rng.integers(8)))] for _ in range(2)]
        levels.append(
            Level.build(
                tiles,
                (86, 50),
                exits=[(place(), place())],
                locked_doors=locked,
                trap_doors=trap,
                entities=others,
                name=f"random level {k} of seed {seed}",
            )
        )
    return levels


# ---------------------------------------------------------------------------------------------------------------------
# Actions


def random_play(levels: Sequence[Level], settings: WorkloadSettings, source: str) -> Workload:
    """Return a workload of uniformly random actions; each episode is on a random level.

    source: description of the levels.
    """
    bank, rng = LevelBank(levels), np.random.default_rng(settings.seed)
    shape = settings.rows, settings.envs
    return Workload(
        bank,
        settings,
        rng.integers(len(bank), size=settings.envs, dtype=np.int32),
        rng.integers(NUM_ACTIONS, size=shape),
        rng.integers(len(bank), size=shape, dtype=np.int32),
        f"random actions on {source}",
    )


def recorded_play(folder: str | Path, settings: WorkloadSettings) -> Workload:
    """Return a workload of the replays below a folder (``*.replay``, ``*.h5``), in an order drawn from the seed.

    Environment i starts with replay i, modulo the number of replays, and continues with the next replay.  Replays that
    do not have one action per ``frame_skip`` frames, or stop before their episode ends, are left out with a note.
    Raises TimingError if no replay remains, ReplayError for a folder without replays and for a damaged file.
    """
    levels, actions, left_out = [], [], Counter[str]()
    replays = [replay for file in find_files([folder]) for replay in read_file(file)]
    for replay in replays:
        try:
            decisions = replay.to_decisions(settings.frame_skip)
        except ReplayError:
            left_out[f"do not have one action per {settings.frame_skip} frames"] += 1
            continue
        run = simulate(replay.level, replay.inputs)
        if run.outcome == "running" or run.frames > LevelBank([replay.level]).time_limit[0]:
            left_out["do not end their episode within its time limit"] += 1
            continue
        levels.append(replay.level)
        actions.append(decisions[: -(-run.frames // settings.frame_skip)])
    notes = tuple(f"left out: {n} of {len(replays)} replays {why}" for why, n in left_out.items())
    if not levels:
        raise TimingError(f"{folder}: no replay can be used; {'; '.join(notes)}")
    order = np.random.default_rng(settings.seed).permutation(len(levels))
    lengths = np.array([len(actions[i]) for i in order])
    stream = np.concatenate([actions[i] for i in order])
    playing = np.repeat(np.arange(len(order), dtype=np.int32), lengths)  # index of the replay of each decision
    start = np.arange(settings.envs) % len(order)
    at = ((np.cumsum(lengths) - lengths)[start] + np.arange(settings.rows)[:, None]) % len(stream)
    return Workload(
        LevelBank([levels[i] for i in order]),
        settings,
        start.astype(np.int32),
        stream[at],
        (playing[at] + 1) % np.int32(len(order)),
        f"{len(order)} recordings",
        notes,
    )


# ---------------------------------------------------------------------------------------------------------------------
# Inputs


def generated_plays(categories: Sequence[str], levels_per_category: int) -> list[Play]:
    """Return generated levels of each category with random inputs."""
    rng, plays = np.random.default_rng(0), []
    for category in categories:
        for level in generated_levels(category, levels_per_category, 0):
            actions = rng.integers(NUM_ACTIONS, size=RANDOM_FRAMES // FRAME_SKIP)
            plays.append(Play(level, np.repeat(ACTION_INPUT[actions], FRAME_SKIP)))
    return plays


def campaign_levels(path: str | Path) -> tuple[list[Level], int]:
    """Return the supported levels of a campaign file (or a folder of them), and the number of levels left out.

    Levels are left out if they are damaged or have unsupported entities.
    Raises LevelSetError if there are no levels, ConfigError if all are left out.
    """
    level_set = LevelSet.at(path)
    levels = []
    for i in range(len(level_set)):
        with suppress(LevelSetError):
            if (level := level_set[i]).support != UNSUPPORTED:
                levels.append(level)
    if not levels:
        raise ConfigError("has no level that can be read and is supported", "campaign", str(path))
    return levels, len(level_set) - len(levels)


def trace_plays(path: str | Path) -> list[Play]:
    """Return the levels and inputs recorded in a trace file.  Raises TraceError for an invalid trace file."""
    return [
        Play(Level.from_bytes(trace["map"].tobytes(), f"{theme}/{case}"), trace["inputs"])
        for theme, case, trace in cases(path)
    ]
