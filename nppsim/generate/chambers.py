"""Family "chambers": rooms on a grid, joined by corridors and shafts, with locked doors and sometimes drones."""

import numpy as np

from nppsim.generate.sketch import (
    OPEN,
    SOLID,
    STEPS,
    Sketch,
    Span,
    crop,
    draw,
    generator,
    line_with_mines,
    nudge,
    place,
    spot,
)
from nppsim.levels import kinds
from nppsim.levels.level import Level
from nppsim.levels.stage import COLUMNS, ROWS

UPRIGHT, FLAT = 0, 2  # orientations of doors: across a corridor, across a shaft
MAX_STEP = 2  # tiles between the floors of two rooms side by side, at most
Room = tuple[int, int, int, int]  # left, top, right, bottom; tiles, ends included


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
    """Rooms, each with a way to each other, and spawn, switch and exit in different ones where there are enough.

    grid: columns and rows of rooms.  width, height: tiles of a room, at least 4; less where the stage is too small.
    doors: locked doors between rooms; their switches lie where they are reached before.
    mines: on walls, floors and ceilings.  drones: zap and mini drones that circle blocks in rooms without the
    spawn.
    """
    rng = generator("chambers", seed)
    across, down = draw(rng, grid[0]), draw(rng, grid[1])
    board = np.full((ROWS, COLUMNS), SOLID, dtype=np.uint8)
    rooms = _rooms(rng, across, down, width, height)
    for left, top, right, bottom in rooms.values():
        board[top : bottom + 1, left : right + 1] = OPEN
    order = [list(rooms)[rng.integers(len(rooms))]]  # rooms in the order in which they are found
    sketch = Sketch(board, (0, 0), (0, 0), (0, 0))
    wanted = draw(rng, doors)
    floors = {cell: [(c, room[3]) for c in range(room[0], room[2] + 1)] for cell, room in rooms.items()}
    links = []  # (number of the room before, place and orientation of a door); link i leads to room i + 1
    while len(order) < len(rooms):
        pairs = [(a, b) for a in order for b in rooms if b not in order and abs(a[0] - b[0]) + abs(a[1] - b[1]) == 1]
        a, b = pairs[rng.integers(len(pairs))]
        first, second = (a, b) if a < b else (b, a)
        join = _corridor if first[1] == second[1] else _shaft
        links.append((order.index(a), *join(rng, board, rooms[first], rooms[second])))
        order.append(b)
    shut = set(rng.permutation(len(links))[:wanted].tolist())
    behind = [set()]  # of each room in ``order``, the doors between it and the spawn
    for number, (parent, _, _) in enumerate(links):
        behind.append(behind[parent] | ({number} & shut))
    switch, door = draw(rng, (min(1, len(order) - 1), len(order) - 1)), len(order) - 1
    if rng.random() < 0.4:
        switch, door = door, switch
    # The exit is at least as far in as its switch: no door must be shut between them.
    if behind[door] < behind[switch]:
        switch, door = door, switch
    shut -= behind[switch] - behind[door]
    taken: list[tuple[int, int]] = []
    spawn, switch, door = (_stand(rng, board, floors[order[i]], taken) for i in (0, switch, door))
    for number in sorted(shut):  # the switch lies in a room that is found before the door
        _, position, orientation = links[number]
        tile = _stand(rng, board, floors[order[draw(rng, (0, number))]], taken)
        if tile is not None:
            sketch.locked_doors.append((spot(*tile), position, orientation))
    if mines[1]:
        goals = [spot(*tile) for tile in taken]
        sketch.entities += line_with_mines(rng, board, draw(rng, mines), goals)
    for number in rng.permutation(len(order) - 1)[: draw(rng, drones)].tolist():
        _add_drone(rng, sketch, rooms[order[1 + number]])
    return place(_cropped(sketch, spot(*spawn), nudge(rng, spot(*switch)), spot(*door)), rng)


def _rooms(rng, across, down, width, height) -> dict[tuple[int, int], Room]:
    """One room per cell of the grid, in reading order; the floors of a row differ by up to ``MAX_STEP``."""
    rooms = {}
    cell_wide, cell_high = COLUMNS // across, ROWS // down
    for j in range(down):
        for i in range(across):
            wide = min(draw(rng, width), cell_wide - 2)
            high = min(draw(rng, height), cell_high - MAX_STEP - 1)
            left = i * cell_wide + draw(rng, (0, cell_wide - 2 - wide))
            bottom = (j + 1) * cell_high - 2 - draw(rng, (0, MAX_STEP)) + (j == down - 1)
            rooms[i, j] = (left, bottom - high + 1, left + wide - 1, bottom)
    return rooms


def _corridor(rng, board, left_room: Room, right_room: Room):
    """Join rooms side by side at the higher of both floors; the place and orientation of a door in the corridor."""
    row = min(left_room[3], right_room[3])
    columns = range(left_room[2] + 1, right_room[0])
    board[row, columns.start : columns.stop] = OPEN
    return (STEPS * draw(rng, (columns.start, columns.stop)), STEPS * row + 2), UPRIGHT


def _shaft(rng, board, upper: Room, lower: Room):
    """Join rooms above each other by a shaft along a wall of the lower one; place and orientation of a door in it."""
    walls = (lower[0], lower[2])
    column = int(rng.choice([c for c in walls if upper[0] <= c <= upper[2]] or walls))
    rows = range(upper[3] + 1, lower[1])
    board[rows.start : rows.stop, column] = OPEN
    # Beside the upper room, the shaft goes on to its floor and sideways into it.
    board[upper[3], min(column, upper[0]) : max(column, upper[2]) + 1] = OPEN
    return (STEPS * column + 2, STEPS * draw(rng, (rows.start, rows.stop))), FLAT


def _add_drone(rng, sketch: Sketch, room: Room) -> None:
    """A block in the air of a room, and a drone that goes around it for ever; none where it does not fit."""
    left, top, right, bottom = room
    row = bottom - draw(rng, (1, 3))
    if right - left < 4 or row - 1 < top:
        return
    column = draw(rng, (left + 2, right - 2))
    sketch.tiles[row, column] = SOLID
    kind = kinds.ZAP_DRONE if rng.random() < 0.6 else kinds.MINI_DRONE
    clockwise = rng.random() < 0.5
    sketch.entities.append((kind, *spot(column, row - 1), 0 if clockwise else 4, 0 if clockwise else 1))


def _stand(rng, board, floor, taken) -> tuple[int, int] | None:
    """A free tile on solid ground of a room, away from those taken where there is room; it is taken then."""
    solid = [(c, r) for c, r in floor if r + 1 == ROWS or board[r + 1, c] == SOLID]
    free = [tile for tile in solid if tile not in taken]
    apart = [tile for tile in free if all(abs(tile[0] - c) + abs(tile[1] - r) > 1 for c, r in taken)]
    choice = apart or free
    if not choice:
        return None
    taken.append(choice[rng.integers(len(choice))])
    return taken[-1]


def _cropped(sketch: Sketch, spawn, switch, door) -> Sketch:
    """The sketch without the rock around it."""
    moved = [spawn, switch, door]
    moved += [position for pair in sketch.locked_doors for position in pair[:2]]
    moved += [(x, y) for _, x, y, *_ in sketch.entities]
    tiles, moved = crop(sketch.tiles, *moved)
    pairs = moved[3 : 3 + 2 * len(sketch.locked_doors)]
    locked = [(pairs[2 * i], pairs[2 * i + 1], o) for i, (_, _, o) in enumerate(sketch.locked_doors)]
    rest = moved[3 + len(pairs) :]
    entities = [(e[0], *at, *e[3:]) for e, at in zip(sketch.entities, rest, strict=True)]
    return Sketch(tiles, moved[0], moved[1], moved[2], locked, [], entities)
