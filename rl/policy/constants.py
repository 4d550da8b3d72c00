"""Constants of policies at play, without torch: torch plays with them, and the page (``rl.studio.policy_file``)."""

from nppsim.levels.stage import CELLS_X, TILE
from nppsim.observe.layout import SPECS

# Networks
CLAMP = 10.0  # largest absolute value of a normalised number, which limits the effect of outliers
PIXEL_SCALE = 1.0 / 255.0  # scales uint8 observations to 0..1
DEATH_PENALTY = 20.0  # minimum penalty of an action that leads to death; an early death costs up to twice as much

# Exploration (``rl.policy.player``)
PATIENCE = 120  # default number of decisions without progress before evaluated agents explore
BURST = 30  # number of decisions of exploration, then of the policy, in turn
MAX_REPEAT = 20  # largest number of decisions for which exploration repeats an action

# Backtracking (``rl.policy.backtracking``)
HORIZON = 80  # decisions; default
MAX_DEATH_RETRIES = 16  # number of times to backtrack from deaths before a failure is accepted
MAX_PHASE_RETRIES = 4  # the same for phases of exploration
# After a death, the player backtracks by at least MIN_DEPTH decisions.  The largest depth grows by DEPTH_STEP per retry.
MIN_DEPTH, DEPTH_STEP = 4, 6
PASSED_DECISIONS = 12  # decisions beyond a failure after which it counts as passed
BACKTRACKING = (  # names of these constants
    "HORIZON",
    "MAX_DEATH_RETRIES",
    "MAX_PHASE_RETRIES",
    "MIN_DEPTH",
    "DEPTH_STEP",
    "PASSED_DECISIONS",
)

# Mirror images of observations (``rl.policy.mirror``)
WIDTH = CELLS_X * TILE  # px, width of the stage
# Components that change their sign.
_SIGNED = {
    "game_state": ("vx", "wall_normal", "floor_normal_x", "pad_direction_x"),
    "reachability_features": ("waypoint1_dx", "waypoint2_dx"),
    "entity_positions": (),
    "switch_states": (),
    "hazards": ("dx", "vx"),
    "foresight": ("dx", "vx"),
}
# Positions on the stage: indices of x; y follows.  Both are 0 for an entity that does not exist.
MIRROR_POSITIONS = {
    "game_state": [0],
    "entity_positions": [i for i, name in enumerate(SPECS["entity_positions"].components) if name.endswith("_x")],
    "switch_states": [i for i, name in enumerate(SPECS["switch_states"].components) if name.endswith("_x")],
}
MIRROR_AXES = {"surroundings": -1, "player_frame": -2, "global_view": -3}  # horizontal axis of pictures
MIRROR_SIGNS = {
    key: [-1.0 if name in signed else 1.0 for name in SPECS[key].components] for key, signed in _SIGNED.items()
}
