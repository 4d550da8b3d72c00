"""Rocket turrets, gauss turrets, chaingun drones and laser drones: sight, aiming and shots (docs/physics.md, section 8.4).

The reference simulator has none of these.  The rules are those of N v2.0, an earlier version of the game at the same 60
frames per second.  They are likely but not proven for N++ (grade B).

A shooter sees the ninja where it was at the end of the previous frame.  A shot is a line from the emitter to the first
wall or closed door.  It kills if it passes closer than RADIUS to the ninja's centre.

Fields of a MOVER record: ``state`` is one of WATCHING ... POSTFIRE, and ``timer`` counts frames in that state.
Rocket turrets: (x, y) is the rocket, or the turret while there is no rocket; (vx, vy) is the unit vector of the flight.
Gauss turrets: (target_x, target_y) is the crosshair, (vx, vy) the unit vector of the last shot.  While TARGETING, ``timer``
counts half frames.
Drones: (vx, vy) is the motion of the last frame while WATCHING, otherwise the unit vector of the first shot or the beam.
"""

import math

import numpy as np

from nppsim._numba.decorators import inlined, kernel, merged
from nppsim.levels import kinds
from nppsim.levels.stage import CELLS_X, CELLS_Y
from nppsim.physics.grid import register
from nppsim.physics.ninja import kill
from nppsim.physics.rays import CLOSED_DOORS, RAY_LENGTH, ray_gap, ray_length
from nppsim.physics.rules import OPEN_DOORS_BLOCK, ROCKETS_TURN_BACK
from nppsim.physics.segments import clamped_cell
from nppsim.physics.state import RADIUS, UNREGISTERED

WATCHING, TARGETING, PREFIRE, FIRING, POSTFIRE = range(5)
LEAD = 1.5  # frames; rockets and gauss turrets aim at the ninja's position after this time at constant velocity

# Rocket turrets.
ROCKET_PREFIRE = 15  # frames from sight to launch
ROCKET_MAX_SPEED = 16.0 / 7.0  # px per frame
ROCKET_TURN = 1.0 / 15.0  # fraction of the deviation from the target that a rocket corrects per frame


def _rocket_speeds() -> np.ndarray:
    """float64[n]: speed in px per frame after i frames of flight; later frames have the last value."""
    speed, acceleration, speeds = 0.0, 0.1 * (2.0 / 3.0) ** 2, [0.0]
    while speed < ROCKET_MAX_SPEED:
        acceleration *= 1.1 ** (2.0 / 3.0)
        speed += acceleration
        speeds.append(speed)
    return np.array([*speeds, ROCKET_MAX_SPEED])


ROCKET_SPEEDS = _rocket_speeds()

# Gauss turrets.
GAUSS_TARGETING = 180  # half frames of good aim before the crosshair is fixed
GAUSS_PREFIRE = 15  # frames from the fixing of the crosshair to the shot
GAUSS_POSTFIRE = 15  # frames after the shot
# Zones by the distance in px from the crosshair to the point aimed at: the zone is the first whose entry of
# GAUSS_DISTANCES is below the distance.  GAUSS_CREDIT: half frames of good aim added per frame in the zone.
# GAUSS_GAIN: fraction of the distance that the crosshair moves per frame.
GAUSS_DISTANCES = np.array([96.0, 42.0, 24.0, -1.0])
GAUSS_CREDIT = np.array([0, 1, 3, 7])
GAUSS_GAIN = np.array([0.03 * 2.0 / 3.0, 0.035 * 2.0 / 3.0, 0.05 * 2.0 / 3.0, 0.05 * 2.0 / 3.0])

# Chaingun drones.
CHAINGUN_SPEED = 3.0 / 7.0  # px per frame
CHAINGUN_PREFIRE = 52  # frames from sight until the direction is fixed
CHAINGUN_INTERVAL = 9  # frames between shots, and before the first one
CHAINGUN_SHOTS = 7
CHAINGUN_FIRING = 72  # frames in FIRING, after the direction is fixed
CHAINGUN_POSTFIRE = 90  # frames in POSTFIRE
CHAINGUN_SPREAD = 0.3  # spread of the shots, as a fraction of the distance from the drone

# Laser drones.
LASER_DRONE_SPEED = 2.0 / 7.0  # px per frame
LASER_DRONE_PREFIRE = 45  # frames from sight to the beam
LASER_DRONE_FIRING = 80  # duration of the beam in frames
LASER_DRONE_POSTFIRE = 60  # frames in POSTFIRE


@kernel
def think_shooter(ninja, shooter, home, target, rules, walls, entities):
    """Advance a shooter by one frame.

    home: its PLACED_DTYPE record.  target: the ninja is a valid target.  rules: bits of ``physics.rules``.
    """
    kind = shooter["type"]
    if kind == kinds.ROCKET_TURRET:
        _think_rocket(ninja, shooter, home, target, rules, walls, entities)
    elif kind == kinds.GAUSS_TURRET:
        _think_gauss(ninja, shooter, target, rules, walls, entities)
    elif kind == kinds.CHAINGUN_DRONE:
        _think_chaingun(ninja, shooter, target, rules, walls, entities)
    else:
        _think_laser_drone(ninja, shooter, target, rules, walls, entities)


@merged
def _enter(shooter, state):
    shooter["state"], shooter["timer"] = state, 0


# ------------------------------------------------------------------------------------------------------- sight and shots
@kernel
def sees(ninja, x, y, rules, walls, entities):
    """Return True if no tile or closed door is between (x, y) and the ninja."""
    dx, dy = ninja["x"] - x, ninja["y"] - y
    distance = math.sqrt(dx * dx + dy * dy)
    return distance < RADIUS or (
        _open_length(x, y, dx / distance, dy / distance, distance, rules, walls, entities) > distance - RADIUS
    )


@inlined
def _open_length(x, y, ux, uy, limit, rules, walls, entities):
    """Length in px, at most ``limit``, of a line of sight from (x, y) in direction (ux, uy)."""
    open_doors_block = rules & OPEN_DOORS_BLOCK != 0
    return ray_length(x, y, ux, uy, limit, open_doors_block, walls, entities)


@kernel
def _shoot(ninja, shooter, ux, uy, target, rules, walls, entities):
    """Shoot in direction (ux, uy), store the length of the shot, and kill a ninja that it hits."""
    length = _open_length(shooter["x"], shooter["y"], ux, uy, RAY_LENGTH, rules, walls, entities)
    shooter["beam"] = length
    if target and ray_gap(ninja, shooter["x"], shooter["y"], ux, uy, length) < RADIUS:
        kill(ninja)


@inlined
def _unit(dx, dy):
    """Unit vector along (dx, dy); (1, 0) for (0, 0)."""
    length = math.sqrt(dx * dx + dy * dy)
    return (dx / length, dy / length) if length > 0.0 else (1.0, 0.0)


# --------------------------------------------------------------------------------------------------------------- rockets
@merged
def _think_rocket(ninja, rocket, home, target, rules, walls, entities):
    if rocket["state"] == FIRING:
        _fly(ninja, rocket, home, target, rules, walls, entities)
    elif rocket["state"] == PREFIRE:
        rocket["timer"] += 1
        if not target:
            _enter(rocket, WATCHING)
        elif rocket["timer"] >= ROCKET_PREFIRE:
            _enter(rocket, FIRING)
            rocket["vx"], rocket["vy"] = _unit(ninja["x"] - rocket["x"], ninja["y"] - rocket["y"])
            register(ninja, rocket, clamped_cell(rocket["x"], CELLS_X), clamped_cell(rocket["y"], CELLS_Y))
    elif target and sees(ninja, rocket["x"], rocket["y"], rules, walls, entities):
        _enter(rocket, PREFIRE)


@merged
def _fly(ninja, rocket, home, target, rules, walls, entities):
    """Accelerate, move and steer towards the ninja's expected position; explode at walls and closed doors."""
    rocket["timer"] = min(rocket["timer"] + 1, len(ROCKET_SPEEDS) - 1)
    step = ROCKET_SPEEDS[rocket["timer"]]
    ux, uy = rocket["vx"], rocket["vy"]
    if ray_length(rocket["x"], rocket["y"], ux, uy, step, CLOSED_DOORS, walls, entities) < step:
        explode(rocket, home)
        return
    rocket["x"] += step * ux
    rocket["y"] += step * uy
    cell_x, cell_y = clamped_cell(rocket["x"], CELLS_X), clamped_cell(rocket["y"], CELLS_Y)
    if cell_x != rocket["cell_x"] or cell_y != rocket["cell_y"]:
        register(ninja, rocket, cell_x, cell_y)
    if not target:
        return
    tx, ty = _unit(
        (ninja["x"] + LEAD * ninja["vx"]) - (rocket["x"] + LEAD * step * ux),
        (ninja["y"] + LEAD * ninja["vy"]) - (rocket["y"] + LEAD * step * uy),
    )
    if ux * tx + uy * ty <= 0.0 and not rules & ROCKETS_TURN_BACK:
        return
    turn = ROCKET_TURN * (ux * ty - uy * tx)
    rocket["vx"], rocket["vy"] = _unit(ux - turn * uy, uy + turn * ux)


@kernel
def explode(rocket, home):
    """Remove the rocket and let the turret watch again."""
    _enter(rocket, WATCHING)
    rocket["x"], rocket["y"], rocket["vx"], rocket["vy"] = home["x"], home["y"], 0.0, 0.0
    rocket["cell_x"] = rocket["cell_y"] = UNREGISTERED


# --------------------------------------------------------------------------------------------------------- gauss turrets
@merged
def _think_gauss(ninja, turret, target, rules, walls, entities):
    turret["timer"] += 1
    x, y, state = turret["x"], turret["y"], turret["state"]
    if state == WATCHING:
        turret["timer"] = 0
        if target and sees(ninja, x, y, rules, walls, entities):
            _enter(turret, TARGETING)
            turret["target_x"], turret["target_y"] = x, y
    elif state == TARGETING:
        turret["timer"] -= 1  # ``_aim`` counts half frames instead
        if target and sees(ninja, x, y, rules, walls, entities):
            _aim(ninja, turret)
        else:
            _enter(turret, WATCHING)
    elif state == PREFIRE:
        if turret["timer"] >= GAUSS_PREFIRE:
            _enter(turret, POSTFIRE)
            turret["vx"], turret["vy"] = _unit(turret["target_x"] - x, turret["target_y"] - y)
            _shoot(ninja, turret, turret["vx"], turret["vy"], target, rules, walls, entities)
    elif turret["timer"] >= GAUSS_POSTFIRE:
        _enter(turret, TARGETING if target and sees(ninja, x, y, rules, walls, entities) else WATCHING)


@merged
def _aim(ninja, turret):
    """Move the crosshair towards the ninja's expected position; fix it after enough time close to the ninja."""
    dx = ninja["x"] + LEAD * ninja["vx"] - turret["target_x"]
    dy = ninja["y"] + LEAD * ninja["vy"] - turret["target_y"]
    distance = math.sqrt(dx * dx + dy * dy)
    zone = 0
    while distance <= GAUSS_DISTANCES[zone]:
        zone += 1
    turret["timer"] += GAUSS_CREDIT[zone]
    turret["target_x"] += GAUSS_GAIN[zone] * dx
    turret["target_y"] += GAUSS_GAIN[zone] * dy
    if turret["timer"] > GAUSS_TARGETING:
        _enter(turret, PREFIRE)


# ---------------------------------------------------------------------------------------------------------------- drones
@merged
def _think_chaingun(ninja, drone, target, rules, walls, entities):
    drone["timer"] += 1
    state = drone["state"]
    if state == WATCHING or (state == POSTFIRE and drone["timer"] >= CHAINGUN_POSTFIRE):
        _enter(drone, PREFIRE if target and sees(ninja, drone["x"], drone["y"], rules, walls, entities) else WATCHING)
    elif state == PREFIRE and drone["timer"] >= CHAINGUN_PREFIRE:
        _enter(drone, FIRING)
        ux, uy = _unit(ninja["x"] - drone["x"], ninja["y"] - drone["y"])
        drone["vx"], drone["vy"] = ux, uy
        drone["flag"] = ninja["vx"] * -uy + ninja["vy"] * ux >= 0.0
    elif state == FIRING:
        if drone["timer"] % CHAINGUN_INTERVAL == 0 and drone["timer"] <= CHAINGUN_INTERVAL * CHAINGUN_SHOTS:
            ux, uy = chaingun_direction(drone)
            _shoot(ninja, drone, ux, uy, target, rules, walls, entities)
        if drone["timer"] >= CHAINGUN_FIRING:
            _enter(drone, POSTFIRE)


@kernel
def chaingun_direction(drone):
    """Unit vector of the last shot, or of the shot in this frame."""
    number = min(drone["timer"] // CHAINGUN_INTERVAL, CHAINGUN_SHOTS)
    side = CHAINGUN_SPREAD * (number / 6.0 - 0.5) * (1.0 if drone["flag"] else -1.0)
    return _unit(drone["vx"] + side * -drone["vy"], drone["vy"] + side * drone["vx"])


@merged
def _think_laser_drone(ninja, drone, target, rules, walls, entities):
    drone["timer"] += 1
    state = drone["state"]
    if state == WATCHING or (state == POSTFIRE and drone["timer"] >= LASER_DRONE_POSTFIRE):
        _enter(drone, WATCHING)
        if target and sees(ninja, drone["x"], drone["y"], rules, walls, entities):
            _enter(drone, PREFIRE)
            drone["vx"], drone["vy"] = _unit(ninja["x"] - drone["x"], ninja["y"] - drone["y"])
    elif state == PREFIRE and drone["timer"] >= LASER_DRONE_PREFIRE:
        _enter(drone, FIRING)
    elif state == FIRING:
        _shoot(ninja, drone, drone["vx"], drone["vy"], target, rules, walls, entities)
        if drone["timer"] >= LASER_DRONE_FIRING:
            _enter(drone, POSTFIRE)
