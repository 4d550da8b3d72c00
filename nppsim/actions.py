"""Input bytes of frames, and the six actions of an agent.

An input byte has one bit per key.  If left and right are both pressed, only left has an effect.  Source:
docs/physics.md, section 9.
"""

import numpy as np

FRAMES_PER_SECOND = 60  # frames of the physics
FRAME_SKIP = 4  # frames per action; as many as the game's jump, floor and wall buffers last
JUMP = 1  # bits of an input byte
RIGHT = 2
LEFT = 4
SELF_DESTRUCT = 8  # ends the run if pressed in two consecutive frames

ACTION_NAMES = ("no-op", "left", "right", "jump", "jump+left", "jump+right")
ACTION_TAGS = ("none", "left", "right", "jump", "jump_left", "jump_right")  # names in TensorBoard tags
NUM_ACTIONS = len(ACTION_NAMES)
ACTION_INPUT = np.array([0, LEFT, RIGHT, JUMP, JUMP | LEFT, JUMP | RIGHT], np.uint8)  # input byte of each action
INPUT_ACTION = np.array([0, 3, 2, 5, 1, 4, 1, 4], np.int64)  # action of each input byte 0..7
MIRRORED_ACTION = np.array([0, 2, 1, 3, 5, 4])  # each action with left and right exchanged
for _table in (ACTION_INPUT, INPUT_ACTION, MIRRORED_ACTION):
    _table.flags.writeable = False
