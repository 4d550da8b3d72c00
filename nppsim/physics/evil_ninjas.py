"""Evil ninjas, type 22: enemies that follow the ninja's trail (docs/physics.md, section 8.6).

The rules come from a community tool; the reference simulator has no evil ninjas.  The trail is the sequence of the
ninja's past positions.  A spawner waits until the ninja touches it.  The n-th evil ninja that is touched on a level
then follows the trail, FOLLOW_FRAMES * n frames behind the ninja.  Before that, the evil ninja slides from its spawner
to the point of the trail where it begins to follow, and cannot kill.

In a MOVER record, ``state`` is UNTOUCHED, COMING or FOLLOWING, ``target_x`` the first frame in which the evil ninja
follows the trail, and ``target_y`` its delay in frames.
"""

from nppsim._numba.decorators import kernel
from nppsim.levels import kinds
from nppsim.levels.stage import CELLS_X, CELLS_Y
from nppsim.physics.grid import register
from nppsim.physics.segments import clamped_cell
from nppsim.physics.state import COMING, FOLLOWING, UNREGISTERED, UNTOUCHED

SPAWNER_RADIUS = 10.0  # px, radius of a spawner
EVIL_RADIUS = 6.0  # px, radius of the circle that kills
FOLLOW_FRAMES = 120  # delay in frames of the first evil ninja, and of each further one; also the duration of the slide
# Number of positions stored beyond the longest delay.  It must exceed the frames of one decision, because foresight
# simulates the latest decision again.
TRAIL_SLACK = 64


@kernel
def wake(ninja, spawner, movers, world, level):
    """Start an evil ninja whose spawner the ninja touches."""
    number = 1
    for m in range(world.level[level]["first_moving"], len(movers)):
        number += movers[m]["type"] == kinds.EVIL_NINJA and movers[m]["state"] != UNTOUCHED
    spawner["state"] = COMING
    spawner["target_x"] = ninja["frame"] + FOLLOW_FRAMES * number
    spawner["target_y"] = FOLLOW_FRAMES * number - 1
    spawner["cell_x"] = spawner["cell_y"] = UNREGISTERED


@kernel
def think_evil_ninja(ninja, evil, home, trail, size):
    """Slide to a point of the ninja's trail, then follow the trail.

    home: PLACED_DTYPE record of the entity in the bank.
    trail: TRAIL_DTYPE[at least size], the ninja's positions; that of frame t is at index t modulo ``size``.
    """
    frame, begin, late = ninja["frame"], int(evil["target_x"]), int(evil["target_y"])
    x, y = evil["x"], evil["y"]
    if frame >= begin:
        then = (frame - late) % size
        evil["state"] = FOLLOWING
        evil["x"], evil["y"] = trail[then]["x"], trail[then]["y"]
        cell_x, cell_y = clamped_cell(evil["x"], CELLS_X), clamped_cell(evil["y"], CELLS_Y)
        if cell_x != evil["cell_x"] or cell_y != evil["cell_y"]:
            register(ninja, evil, cell_x, cell_y)
    elif frame > begin - FOLLOW_FRAMES + 1:  # in earlier frames, position ``first`` is not yet stored
        first, share = (begin - late) % size, (frame - (begin - FOLLOW_FRAMES)) / FOLLOW_FRAMES
        evil["x"] = home["x"] + share * (trail[first]["x"] - home["x"])
        evil["y"] = home["y"] + share * (trail[first]["y"] - home["y"])
    evil["vx"], evil["vy"] = evil["x"] - x, evil["y"] - y
