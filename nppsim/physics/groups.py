"""Groups of entity types for kernels (docs/physics.md, section 7.1).

The comparisons are written out because they compile to faster code than ``kind in TUPLE``.
"""

from nppsim._numba.decorators import inlined
from nppsim.levels import kinds


@inlined
def is_mine(kind):
    """Return True if a type is in ``kinds.MINES``."""
    return kind == kinds.MINE or kind == kinds.TOGGLE_MINE


@inlined
def is_drone(kind):
    """Return True if a type is in ``kinds.DRONES``."""
    return kind == kinds.ZAP_DRONE or kind == kinds.CHASER_DRONE or kind == kinds.MINI_DRONE or is_shooting_drone(kind)


@inlined
def is_shooting_drone(kind):
    """Return True if a type is in ``kinds.SHOOTING_DRONES``."""
    return kind == kinds.CHAINGUN_DRONE or kind == kinds.LASER_DRONE


@inlined
def is_shooter(kind):
    """Return True if a type is in ``kinds.SHOOTING_DRONES`` or ``kinds.TURRETS``."""
    return is_shooting_drone(kind) or kind == kinds.ROCKET_TURRET or kind == kinds.GAUSS_TURRET


@inlined
def is_block(kind):
    """Return True if a type is in ``kinds.BLOCKS``."""
    return kind == kinds.BOUNCE_BLOCK or kind == kinds.THWUMP or kind == kinds.SHOVE_THWUMP
