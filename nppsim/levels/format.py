"""Map layout of N++: byte offsets in the file, columns of a record, and the exception that all level readers raise.

Source: docs/physics.md, section 2.
"""

from nppsim.errors import UserError
from nppsim.levels.stage import CELLS_X, CELLS_Y, COLUMNS, ROWS, TILE

POSITION_UNIT = 6  # px per step of a record's x and y byte; x = y = 0 is the outer corner of the border, top left
STEPS_PER_TILE = TILE // POSITION_UNIT
MIRROR_X = STEPS_PER_TILE * CELLS_X  # x byte of the stage's right edge
BOTTOM_Y = STEPS_PER_TILE * CELLS_Y  # y byte of the stage's lower edge

# Offsets and sizes in bytes.
TITLE = slice(38, 166)
TILES_OFFSET = 184
COUNTS_OFFSET = TILES_OFFSET + ROWS * COLUMNS
NUM_COUNTS = 40
RECORDS_OFFSET = 1230
TYPE, X, Y, ORIENTATION, MODE = range(5)  # index of each byte in a record
RECORD_SIZE = MODE + 1
COUNTED = -1  # value of ``exit_count`` and ``ball_count``: use the number of exit or death-ball records
MAX_RECORDS = 16_383  # far above the limits of the game; a record creates up to two entities, numbered in int16


class LevelError(UserError, ValueError):
    """Unusable level; the message contains the file, the position, the value and the expected value."""
