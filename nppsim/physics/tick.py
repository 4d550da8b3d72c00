"""Simulation of one frame, in the order of docs/physics.md, section 5.  Section numbers refer to that page."""

from nppsim._numba import phases as clock
from nppsim._numba.decorators import entry, inlined, merged
from nppsim.actions import JUMP, LEFT, RIGHT, SELF_DESTRUCT
from nppsim.physics import state as s
from nppsim.physics.entities import interact, think
from nppsim.physics.movers import move_all, think_all
from nppsim.physics.ninja import collide, control, integrate, kill, settle_contacts, wall_beside


@entry
def start(ninja, entities, movers, world, level):
    """Set one environment to the start of a level."""
    ninja["x"], ninja["y"] = world.level[level]["spawn_x"], world.level[level]["spawn_y"]
    ninja["vx"], ninja["vy"] = 0.0, 0.0
    ninja["start_x"], ninja["start_y"] = ninja["x"], ninja["y"]
    ninja["free_vx"], ninja["free_vy"] = 0.0, 0.0
    ninja["gravity"], ninja["drag"] = s.GRAVITY_FALL, s.DRAG
    ninja["wall_normal"] = 0.0
    ninja["floor_x"], ninja["floor_y"] = 0.0, -1.0
    ninja["floor_sum_x"], ninja["floor_sum_y"] = 0.0, 0.0
    ninja["ceiling_sum_x"], ninja["ceiling_sum_y"] = 0.0, 0.0
    ninja["pad_x"], ninja["pad_y"] = 0.0, 0.0
    ninja["win_fraction"] = 0.0
    ninja["level"] = level
    ninja["frame"] = 0
    ninja["gold"] = 0
    ninja["hold"] = 0
    ninja["floor_count"], ninja["ceiling_count"] = 0, 0
    ninja["state"] = s.STANDING
    ninja["airborne"], ninja["airborne_before"], ninja["walled"], ninja["jump_held"] = 0, 0, 0, 0
    ninja["jump_buffer"], ninja["floor_buffer"], ninja["wall_buffer"], ninja["pad_buffer"] = -1, -1, -1, -1
    ninja["switch_taken"], ninja["arming"], ninja["suicide_held"] = 0, 0, 0
    ninja["crushable"] = 0
    ninja["crush_x"], ninja["crush_y"], ninja["crush_length"] = 0.0, 0.0, 0.0
    ninja["registrations"] = world.level[level]["registrations"]
    base = world.level[level]["entity_first"]
    for k in range(world.level[level]["entity_end"] - base):
        entities[k]["active"] = world.entity[base + k]["active"]
        entities[k]["state"] = world.entity[base + k]["state"]
        entities[k]["closed"] = world.entity[base + k]["closed"]
        entities[k]["clock"] = 0
        entities[k]["blocking"] = world.entity[base + k]["closed"]
    first = world.level[level]["mover_first"]
    for m in range(world.level[level]["mover_end"] - first):
        movers[m] = world.mover[first + m]


@merged
def tick(ninja, entities, movers, trail, world, input_byte, laps=None):
    """Call ``advance_frame``, and append the ninja's position to ``trail`` if the level has evil ninjas."""
    record = world.level[ninja["level"]]
    movers = movers[: record["mover_end"] - record["mover_first"]]
    advance_frame(ninja, entities, movers, trail, world, input_byte, laps)
    size = record["trail"]
    if size:
        now = ninja["frame"] % size
        trail[now]["x"], trail[now]["y"] = ninja["x"], ninja["y"]


@inlined
def advance_frame(ninja, entities, movers, trail, world, input_byte, laps=None):
    """Advance one environment by one frame, without writing to ``trail``.

    movers: the level's movers; some may be omitted (``reach``), but no exits.
    trail: TRAIL_DTYPE[at least ``trail`` of the level], the ninja's latest positions.
    input_byte: keys, see ``nppsim.actions``.  Self-destruct (section 8.3) needs its key in two frames in a row.
    laps: int64[NUM_PHASES], nanoseconds of each phase, increased here; empty or None to measure nothing (``_numba.phases``).
    """
    since = clock.begin(laps) if laps is not None else 0
    level = ninja["level"]
    h = -1 if input_byte & LEFT else (1 if input_byte & RIGHT else 0)
    suicide = 1 if input_byte & SELF_DESTRUCT else 0
    ninja["frame"] += 1
    moves = world.level[level]["moves"] != 0
    if moves:
        move_all(ninja, entities, movers, world, level)
    if laps is not None:
        since = clock.stamp(laps, clock.PHASE.movers_move, since)
    think(ninja, entities, world, level)
    if moves:
        think_all(ninja, entities, movers, trail, world, level)
    if laps is not None:
        since = clock.stamp(laps, clock.PHASE.movers_think, since)
    if suicide and ninja["suicide_held"]:
        kill(ninja)
    ninja["suicide_held"] = suicide
    if ninja["state"] != s.DEAD:
        integrate(ninja)
        no_wall = collide(ninja, entities, movers, world, level)
        x, y = ninja["x"], ninja["y"]
        wall = interact(ninja, entities, movers, world, level)
        # ``interact`` may have made ``no_wall`` obsolete: a launch pad moves the ninja, and doors open and close.
        no_doors = world.level[level]["doors_first"] == world.level[level]["switches_end"]
        if wall == 0.0 and not (no_wall and no_doors and ninja["x"] == x and ninja["y"] == y):
            segments, first = world.segments, world.level[level]["segment_first"]
            wall = wall_beside(ninja, segments, world.cell_start[level], first, world.near[level], entities)
        settle_contacts(ninja, wall)
    control(ninja, h, input_byte & JUMP)
    if laps is not None:
        clock.stamp(laps, clock.PHASE.ninja, since)
