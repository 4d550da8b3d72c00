"""The inputs of a frame, and the six actions that an agent chooses from.

An input byte has a bit per key; left wins over right.  Source: docs/physics.md, section 9.
"""

import numpy as np

FRAMES_PER_SECOND = 60  # of the physics
FRAME_SKIP = 4  # frames that an agent's action lasts; the longest that fits into every input buffer
JUMP = 1  # bits of an input byte
RIGHT = 2
LEFT = 4
SELF_DESTRUCT = 8  # pressed in two frames in a row, it ends the run

ACTION_NAMES = ("no-op", "left", "right", "jump", "jump+left", "jump+right")
ACTION_TAGS = ("none", "left", "right", "jump", "jump_left", "jump_right")  # the same in names of TensorBoard curves
NUM_ACTIONS = len(ACTION_NAMES)
ACTION_INPUT = np.array([0, LEFT, RIGHT, JUMP, JUMP | LEFT, JUMP | RIGHT], np.uint8)  # input byte of each action
INPUT_ACTION = np.array([0, 3, 2, 5, 1, 4, 1, 4], np.int64)  # action of each input byte 0..7
MIRRORED_ACTION = np.array([0, 2, 1, 3, 5, 4])  # each action seen in a mirror, left and right exchanged
for _table in (ACTION_INPUT, INPUT_ACTION, MIRRORED_ACTION):
    _table.flags.writeable = False
