"""Generator "chambers": a grid of rooms that are connected by corridors and shafts, some with locked doors."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from nppsim.generate.sketch import (
    FLAT,
    UPRIGHT,
    Placed,
    Position,
    Rng,
    Span,
    Tile,
    draw,
    furnish,
    level_rng,
    line_with_mines,
    pick,
    place,
    spot,
)
from nppsim.levels import kinds
from nppsim.levels.level import STEPS_PER_TILE, Level
from nppsim.levels.stage import COLUMNS, ROWS
from nppsim.levels.tiles import OPEN, SOLID

MAX_STEP = 2  # maximum difference in tiles between the floors of neighbouring rooms

Cell = tuple[int, int]  # (column, row) in the grid of rooms


class Room(NamedTuple):
    """Rectangle of tiles; ``right`` and ``bottom`` are its last column and row."""

    left: int
    top: int
    right: int
    bottom: int

    @property
    def floor(self) -> list[Tile]:
        """Tiles of the lowest row."""
        return [(column, self.bottom) for column in range(self.left, self.right + 1)]


class Link(NamedTuple):
    """Passage from a room to one that is connected later.

    parent: index of the room that was connected first.
    position, orientation: position and orientation for a door in the passage.
    """

    parent: int
    position: Position
    orientation: int


def chambers(
    seed: int,
    *,
    grid: tuple[Span, Span],
    width: Span,
    height: Span,
    doors: Span = (0, 0),
    mines: Span = (0, 0),
    drones: Span = (0, 0),
) -> Level:
    """Generate connected rooms; spawn, switch and exit are in different rooms if there are enough.

    grid: number of columns and rows of rooms.
    width, height: size of a room in tiles, at least 4; reduced if the stage is too small.
    doors: number of locked doors between rooms; the switch is on the spawn's side of its door.
    mines: number of mines on walls, floors and ceilings.
    drones: number of zap and mini drones that circle blocks in rooms without the spawn.
    """
    rng = level_rng("chambers", seed)
    across, down = draw(rng, grid[0]), draw(rng, grid[1])
    board = np.full((ROWS, COLUMNS), SOLID, dtype=np.uint8)
    cells = _rooms(rng, across, down, width, height)
    for room in cells.values():
        board[room.top : room.bottom + 1, room.left : room.right + 1] = OPEN
    first = pick(rng, list(cells))
    wanted = draw(rng, doors)
    rooms, links = _connect(rng, board, cells, first)
    shut = set(rng.permutation(len(links))[:wanted].tolist())
    switch_room, door_room = _goals(rng, links, shut)
    used: list[Tile] = []
    spawn = _stand(rng, board, rooms[0], used)
    switch = _stand(rng, board, rooms[switch_room], used)
    door = _stand(rng, board, rooms[door_room], used)
    assert spawn and switch and door  # every room has a floor of four tiles
    locked_doors = []
    for number in sorted(shut):  # the switch is in a room that is reached before the door
        tile = _stand(rng, board, rooms[draw(rng, (0, number))], used)
        if tile is not None:
            locked_doors.append((spot(*tile), links[number].position, links[number].orientation))
    entities: list[Placed] = []
    if mines[1]:
        entities += line_with_mines(rng, board, draw(rng, mines), [spot(*tile) for tile in used])
    for number in rng.permutation(len(links))[: draw(rng, drones)].tolist():
        entities += _circling_drone(rng, board, rooms[1 + number])
    sketch = furnish(rng, board, spawn, switch, door)
    sketch.locked_doors, sketch.entities = locked_doors, entities
    return place(sketch.cropped(), rng)


def _connect(rng: Rng, board: np.ndarray, cells: Mapping[Cell, Room], first: Cell) -> tuple[list[Room], list[Link]]:
    """Connect the rooms; return them in order of connection, and the links.  Link i leads to room i + 1."""
    order, links = [first], []
    while len(order) < len(cells):
        pairs = [(a, b) for a in order for b in cells if b not in order and abs(a[0] - b[0]) + abs(a[1] - b[1]) == 1]
        a, b = pick(rng, pairs)
        before, after = (a, b) if a < b else (b, a)
        join = _corridor if before[1] == after[1] else _shaft
        links.append(Link(order.index(a), *join(rng, board, cells[before], cells[after])))
        order.append(b)
    return [cells[cell] for cell in order], links


def _goals(rng: Rng, links: list[Link], shut: set[int]) -> tuple[int, int]:
    """Choose the rooms of exit switch and exit; remove doors in front of the switch that are not in front of the exit.

    shut: indices of the links with a door; changed in place.
    """
    behind: list[set[int]] = [set()]  # for each room, the doors between it and the spawn
    for number, link in enumerate(links):
        behind.append(behind[link.parent] | ({number} & shut))
    switch, door = draw(rng, (min(1, len(links)), len(links))), len(links)
    if rng.random() < 0.4:
        switch, door = door, switch
    # Remove the doors that are only in front of the exit switch.
    if behind[door] < behind[switch]:
        switch, door = door, switch
    shut -= behind[switch] - behind[door]
    return switch, door


def _rooms(rng: Rng, across: int, down: int, width: Span, height: Span) -> dict[Cell, Room]:
    """Draw one room per cell of the grid, row by row; the floors of a row differ by at most ``MAX_STEP``."""
    rooms = {}
    cell_wide, cell_high = COLUMNS // across, ROWS // down
    for j in range(down):
        for i in range(across):
            wide = min(draw(rng, width), cell_wide - 2)
            high = min(draw(rng, height), cell_high - MAX_STEP - 1)
            left = i * cell_wide + draw(rng, (0, cell_wide - 2 - wide))
            bottom = (j + 1) * cell_high - 2 - draw(rng, (0, MAX_STEP)) + (j == down - 1)
            rooms[i, j] = Room(left, bottom - high + 1, left + wide - 1, bottom)
    return rooms


def _corridor(rng: Rng, board: np.ndarray, left_room: Room, right_room: Room) -> tuple[Position, int]:
    """Connect horizontal neighbours at the level of the higher floor; return position and orientation of a door."""
    row = min(left_room.bottom, right_room.bottom)
    columns = range(left_room.right + 1, right_room.left)
    board[row, columns.start : columns.stop] = OPEN
    return (STEPS_PER_TILE * draw(rng, (columns.start, columns.stop)), STEPS_PER_TILE * row + 2), UPRIGHT


def _shaft(rng: Rng, board: np.ndarray, upper: Room, lower: Room) -> tuple[Position, int]:
    """Connect vertical neighbours by a shaft along a wall of the lower room; return position and orientation of a door."""
    walls = (lower.left, lower.right)
    column = int(rng.choice([c for c in walls if upper.left <= c <= upper.right] or walls))
    rows = range(upper.bottom + 1, lower.top)
    board[rows.start : rows.stop, column] = OPEN
    # If the shaft is beside the upper room, continue it to the room's floor and sideways into the room.
    board[upper.bottom, min(column, upper.left) : max(column, upper.right) + 1] = OPEN
    return (STEPS_PER_TILE * column + 2, STEPS_PER_TILE * draw(rng, (rows.start, rows.stop))), FLAT


def _circling_drone(rng: Rng, board: np.ndarray, room: Room) -> list[Placed]:
    """Add a floating block to a room and return a drone that circles it; return [] if the block does not fit."""
    row = room.bottom - draw(rng, (1, 3))
    if room.right - room.left < 4 or row - 1 < room.top:
        return []
    column = draw(rng, (room.left + 2, room.right - 2))
    board[row, column] = SOLID
    kind = kinds.ZAP_DRONE if rng.random() < 0.6 else kinds.MINI_DRONE
    clockwise = rng.random() < 0.5
    return [(kind, *spot(column, row - 1), 0 if clockwise else 4, 0 if clockwise else 1)]


def _stand(rng: Rng, board: np.ndarray, room: Room, used: list[Tile]) -> Tile | None:
    """Draw a free tile on the solid floor of a room, not next to used ones if possible, and add it to ``used``."""
    solid = [(c, r) for c, r in room.floor if r + 1 == ROWS or board[r + 1, c] == SOLID]
    free = [tile for tile in solid if tile not in used]
    apart = [tile for tile in free if all(abs(tile[0] - c) + abs(tile[1] - r) > 1 for c, r in used)]
    choice = apart or free
    if not choice:
        return None
    used.append(pick(rng, choice))
    return used[-1]
