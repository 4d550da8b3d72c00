"""Generator "course": a cave with stations from left to right, each built around one type of entity."""

from collections.abc import Callable, Sequence
from copy import deepcopy

from nppsim.generate.cave import Cave, sections
from nppsim.generate.sketch import DOWN, LEFT, RIGHT, UP, UP_RIGHT, Placed, Rng, Span, draw, level_rng, pick, place
from nppsim.levels import kinds as entity
from nppsim.levels.level import STEPS_PER_TILE, Level
from nppsim.levels.stage import COLUMNS
from nppsim.levels.tiles import SOLID

STRAIGHT_ON = (2, 3)  # modes of drones that fly straight ahead until blocked
LOW = 3  # height of the ground in tiles, at the start and after a descent, as room for pits
REST = (3, 5)  # columns of level ground before, between and after the stations
# Tile ids at the left and right end of humps and hollows: discs, fillets, 45-degree slopes.
HUMPS = ((12, 13), (16, 17), (8, 9))
HOLLOWS = ((17, 16), (9, 8))


class _Board:
    """A cave under construction: sections of ground and ceiling, and entities.

    rows: height of the cave in tiles.  columns: width so far.  ground: height of the ground at the right end, in tiles.
    """

    def __init__(self, rows: int):
        self.rows, self.ground, self.columns = rows, LOW, 0
        self.floor: list[tuple[int, int]] = []
        self.ceiling: list[tuple[int, int]] = []
        self.entities: list[Placed] = []
        self.tiles: list[tuple[int, int, int]] = []  # (column, tiles above the lower edge, tile id)

    def add(self, columns: int, ground: int, clear: int | None = None) -> range:
        """Append columns with this height of ground; return their numbers.  clear: free tiles above it; None: all."""
        start = self.columns
        self.floor.append((columns, 2 * ground))
        self.ceiling.append((columns, 0 if clear is None else max(0, 2 * (self.rows - ground - clear))))
        self.columns += columns
        return range(start, self.columns)

    def put(self, kind: int, column: int, up: int, *rest: int) -> None:
        """Add an entity in the middle of a column, ``up`` steps of 6 px above the lower edge."""
        self.entities.append((kind, STEPS_PER_TILE * column + 2, STEPS_PER_TILE * self.rows - up, *rest))

    def rest(self, rng: Rng) -> range:
        """Append level ground under a ceiling of random height."""
        return self.add(draw(rng, REST), self.ground, draw(rng, (4, max(4, self.rows - self.ground))))

    def pit(self, rng: Rng, columns: int) -> range:
        """Append a pit with mines on its bottom, at most LOW tiles deep."""
        bottom = max(0, self.ground - LOW)
        above = draw(rng, (5, max(5, self.rows - self.ground)))
        pit = self.add(columns, bottom, self.ground - bottom + above)
        for column in pit:
            self.put(entity.MINE, column, STEPS_PER_TILE * bottom + 1)
        return pit

    def room_above(self, rng: Rng, tiles: int) -> None:
        """Lower the ground by a cliff if fewer than ``tiles`` tiles are free above it."""
        if self.rows - self.ground < tiles:
            self.ground = LOW
            self.add(draw(rng, REST), self.ground)


def course(seed: int, *, kinds: Sequence[str], stations: Span, height: Span) -> Level:
    """Generate stations with level ground between them.

    The spawn is before the first station, the exit after the last one, and the switch after the first one.
    kinds: keys of ``STATIONS``.
    stations: number of stations; fewer if the stage is full.
    height: tiles, at least 12.
    Raises ValueError for an unknown kind.
    """
    unknown = set(kinds) - set(STATIONS)
    if unknown:
        raise ValueError(f"unknown stations {', '.join(sorted(unknown))}; choose from {', '.join(STATIONS)}")
    rng = level_rng("course", seed)
    board = _Board(draw(rng, height))
    rests = [board.rest(rng)]
    for _ in range(draw(rng, stations)):
        longer = deepcopy(board)
        STATIONS[pick(rng, kinds)](rng, longer)
        rest = longer.rest(rng)
        if longer.columns > COLUMNS and len(rests) > 1:
            break  # the stage is full
        board = longer
        rests.append(rest)
    cave = Cave(sections(*board.floor), sections(*board.ceiling), board.rows)
    spawn, door = rests[0][0], rests[-1][draw(rng, (1, len(rests[-1]) - 1))]
    places = [c for rest in rests[1:] for c in rest if c != door]
    sketch = cave.sketch(rng, spawn, pick(rng, places), door)
    for column, up, tile in board.tiles:
        sketch.tiles[board.rows - 1 - up, column] = tile
    sketch.entities += board.entities
    return place(sketch, rng)


def _launch(rng: Rng, board: _Board) -> None:
    """Add a cliff that is too high to jump, with a launch pad in front of it."""
    board.room_above(rng, 9)
    rise = draw(rng, (4, min(8, board.rows - board.ground - 4)))
    foot = board.add(draw(rng, (2, 4)), board.ground)
    away = draw(rng, (0, 1))
    orientation = UP_RIGHT if away and rng.random() < 0.5 else UP
    board.put(entity.LAUNCH_PAD, foot[-1 - away], STEPS_PER_TILE * board.ground, orientation)
    board.ground += rise


def _bounce(rng: Rng, board: _Board) -> None:
    """Add a deadly pit with bounce blocks to step on."""
    pit = board.pit(rng, draw(rng, (7, 13)))
    spacing = draw(rng, (2, 4))
    for column in pit[1:-1:spacing]:
        board.put(entity.BOUNCE_BLOCK, column, STEPS_PER_TILE * board.ground - draw(rng, (0, 6)))


def _one_way_bridge(rng: Rng, board: _Board) -> None:
    """Add a deadly pit with one-way platforms over it."""
    pit = board.pit(rng, draw(rng, (7, 14)))
    spacing = draw(rng, (2, 4))
    for column in pit[1:-1:spacing]:
        board.put(entity.ONE_WAY, column, STEPS_PER_TILE * board.ground - draw(rng, (0, 4)), UP)


def _one_way_ladder(rng: Rng, board: _Board) -> None:
    """Add a cliff with one-way platforms that can be passed from below."""
    board.room_above(rng, 9)
    rise = draw(rng, (4, min(8, board.rows - board.ground - 4)))
    foot = board.add(draw(rng, (3, 5)), board.ground)
    for up in range(2, rise, 2):
        board.put(
            entity.ONE_WAY, foot[draw(rng, (len(foot) - 3, len(foot) - 1))], STEPS_PER_TILE * (board.ground + up), UP
        )
    board.ground += rise


def _one_way_gate(rng: Rng, board: _Board) -> None:
    """Add a low passage with a one-way wall, so that the ninja cannot return."""
    passage = board.add(draw(rng, (2, 5)), board.ground, 1)
    x = STEPS_PER_TILE * draw(rng, (passage[0] + 1, passage[-1]))
    board.entities.append((entity.ONE_WAY, x, STEPS_PER_TILE * (board.rows - board.ground) - 2, RIGHT))


def _thwump(rng: Rng, board: _Board) -> None:
    """Add a passage under one or two thwumps."""
    clear = min(draw(rng, (3, 6)), board.rows - board.ground)
    passage = board.add(draw(rng, (4, 8)), board.ground, clear)
    hung = passage[1:-1] if len(passage) < 7 else (passage[1], passage[-2])
    for column in rng.permutation(hung)[: draw(rng, (1, 2)) if len(passage) >= 7 else 1].tolist():
        board.put(entity.THWUMP, column, STEPS_PER_TILE * (board.ground + clear) - 2, DOWN)


def _drone(rng: Rng, board: _Board) -> None:
    """Add a drone that moves up and down in a narrow shaft across the path."""
    depth, clear, above = draw(rng, (1, 3)), draw(rng, (2, 4)), draw(rng, (1, 3))
    board.add(draw(rng, (1, 2)), board.ground, clear)
    shaft = board.add(1, board.ground - depth, clear + depth + above)
    board.add(draw(rng, (1, 2)), board.ground, clear)
    kind = entity.ZAP_DRONE if rng.random() < 0.5 else entity.MINI_DRONE
    up = STEPS_PER_TILE * (board.ground - depth + draw(rng, (0, depth + above))) + 2
    board.put(kind, shaft[0], up, rng.choice([DOWN, UP]).item(), STRAIGHT_ON[draw(rng, (0, 1))])


def _guard(rng: Rng, board: _Board) -> None:
    """Add a hollow with a floor guard; a wide hollow also has a floating block to step on."""
    hollow = board.add(draw(rng, (4, 9)), board.ground - 1)
    board.put(entity.FLOOR_GUARD, hollow[draw(rng, (1, len(hollow) - 2))], STEPS_PER_TILE * (board.ground - 1) + 1)
    if len(hollow) >= 7:
        middle = hollow[len(hollow) // 2]
        board.tiles += [(middle - i, board.ground + 1, SOLID) for i in range(draw(rng, (1, 2)))]


def _boost(rng: Rng, board: _Board) -> None:
    """Add boost pads on the ground in front of a wide deadly pit."""
    run = board.add(draw(rng, (4, 6)), board.ground)
    for column in run[1::2][: draw(rng, (1, 3))]:
        board.put(entity.BOOST_PAD, column, STEPS_PER_TILE * board.ground + 2)
    board.pit(rng, draw(rng, (7, 11)))


def _curves(rng: Rng, board: _Board) -> None:
    """Add one or two humps or hollows with rounded or sloping ends."""
    for _ in range(draw(rng, (1, 2))):
        if rng.random() < 0.6:
            hump = board.add(draw(rng, (3, 6)), board.ground)
            left, right = pick(rng, HUMPS)
            middle = [(c, board.ground, SOLID) for c in hump[1:-1]]
            board.tiles += [(hump[0], board.ground, left), *middle, (hump[-1], board.ground, right)]
        else:
            hollow = board.add(draw(rng, (3, 7)), board.ground - 1)
            left, right = pick(rng, HOLLOWS)
            board.tiles += [(hollow[0], board.ground - 1, left), (hollow[-1], board.ground - 1, right)]
        board.add(draw(rng, (1, 2)), board.ground)


def _shove(rng: Rng, board: _Board) -> None:
    """Add a deadly pit with shove thwumps to step on; each one falls when the ninja leaves it, and returns slowly."""
    pit = board.pit(rng, draw(rng, (11, 18)))
    spacing = draw(rng, (3, 4))
    for column in pit[1:-1:spacing]:
        board.put(entity.SHOVE_THWUMP, column, STEPS_PER_TILE * board.ground - 2)


def _ball(rng: Rng, board: _Board) -> None:
    """Add a hall with one or two death balls in the air, which move towards the ninja."""
    clear = min(draw(rng, (5, 7)), board.rows - board.ground)
    hall = board.add(draw(rng, (6, 10)), board.ground, clear)
    for column in rng.permutation(hall[2:])[: draw(rng, (1, 2))].tolist():
        board.put(entity.DEATH_BALL, column, STEPS_PER_TILE * (board.ground + draw(rng, (2, clear - 1))))


def _cover(rng: Rng, board: _Board, clear: int) -> list[int]:
    """Append a hall with walls to hide behind; return the columns without a wall."""
    open_columns: list[int] = []
    for part in range(draw(rng, (2, 3))):
        if part:
            board.add(1, board.ground + draw(rng, (1, 2)), clear)
        open_columns += board.add(draw(rng, (3, 5)), board.ground, clear)
    return open_columns


def _turret(rng: Rng, board: _Board) -> None:
    """Add a hall with walls to hide behind, and a rocket or gauss turret below its ceiling."""
    board.room_above(rng, 7)
    clear = min(draw(rng, (6, 8)), board.rows - board.ground)
    hall = _cover(rng, board, clear)
    kind = entity.ROCKET_TURRET if rng.random() < 0.7 else entity.GAUSS_TURRET
    board.put(kind, hall[draw(rng, (len(hall) // 2, len(hall) - 1))], STEPS_PER_TILE * (board.ground + clear) - 2)


def _gunner(rng: Rng, board: _Board) -> None:
    """Add a hall with walls to hide behind, and a chaingun or laser drone that flies below its ceiling."""
    board.room_above(rng, 7)
    clear = min(draw(rng, (6, 8)), board.rows - board.ground)
    hall = _cover(rng, board, clear)
    kind = entity.CHAINGUN_DRONE if rng.random() < 0.5 else entity.LASER_DRONE
    up = STEPS_PER_TILE * (board.ground + clear) - 2
    board.put(kind, pick(rng, hall), up, rng.choice([LEFT, RIGHT]).item(), pick(rng, STRAIGHT_ON))


def _laser(rng: Rng, board: _Board) -> None:
    """Add a hall with walls to hide behind, and a rotating laser turret in the air."""
    board.room_above(rng, 6)
    clear = min(draw(rng, (5, 7)), board.rows - board.ground)
    up = STEPS_PER_TILE * (board.ground + clear) - draw(rng, (6, 10))
    board.put(entity.LASER, pick(rng, _cover(rng, board, clear)[2:]), up, draw(rng, (0, 7)), draw(rng, (0, 1)))


def _chaser(rng: Rng, board: _Board) -> None:
    """Add a hollow with a chaser drone, which flies at a ninja that enters, and a floating block to step on."""
    hollow = board.add(draw(rng, (6, 10)), board.ground - 1)
    up = STEPS_PER_TILE * (board.ground - 1) + 2
    column = hollow[draw(rng, (len(hollow) // 2, len(hollow) - 2))]
    board.put(entity.CHASER_DRONE, column, up, rng.choice([LEFT, RIGHT]).item(), pick(rng, STRAIGHT_ON))
    middle = hollow[len(hollow) // 2]
    board.tiles += [(middle - i, board.ground + 1, SOLID) for i in range(draw(rng, (1, 2)))]


def _follower(rng: Rng, board: _Board) -> None:
    """Add a low passage with one or two evil ninjas, which follow the ninja from there on, and a wall to climb."""
    board.room_above(rng, 7)
    passage = board.add(draw(rng, (3, 6)), board.ground, draw(rng, (2, 3)))
    for column in rng.permutation(passage)[: draw(rng, (1, 2))].tolist():
        board.put(entity.EVIL_NINJA, column, STEPS_PER_TILE * board.ground + 2)
    board.add(draw(rng, (2, 3)), board.ground)
    board.add(draw(rng, (1, 2)), board.ground + draw(rng, (2, 4)))
    board.add(draw(rng, (1, 2)), board.ground)


STATIONS: dict[str, Callable[[Rng, _Board], None]] = {
    station.__name__.removeprefix("_"): station
    for station in (_launch, _bounce, _one_way_bridge, _one_way_ladder, _one_way_gate, _thwump, _drone, _guard)
    + (_boost, _curves, _shove, _ball, _turret, _gunner, _laser, _chaser, _follower)
}
