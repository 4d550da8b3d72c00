"""Map layout of N++: byte offsets in the file, the columns of a record, and the error of every level reader.

Source: docs/physics.md, section 2.
"""

from nppsim.errors import UserError
from nppsim.levels.stage import CELLS_X, CELLS_Y, COLUMNS, ROWS, TILE

POSITION_UNIT = 6  # px per step of a record's x and y byte; byte 0 is the outer corner of the border
STEPS_PER_TILE = TILE // POSITION_UNIT
MIRROR_X = STEPS_PER_TILE * CELLS_X  # x byte of the stage's right edge
BOTTOM_Y = STEPS_PER_TILE * CELLS_Y  # y byte of its lower edge

# Offsets and sizes in bytes.
TITLE = slice(38, 166)
TILES_OFFSET = 184
COUNTS_OFFSET = TILES_OFFSET + ROWS * COLUMNS
NUM_COUNTS = 40
RECORDS_OFFSET = 1230
TYPE, X, Y, ORIENTATION, MODE = range(5)  # bytes of a record
RECORD_SIZE = MODE + 1
COUNTED = -1  # instead of a count: the number of such records
MAX_RECORDS = 16_383  # many times what the game allows; a record makes up to two entities, counted in int16


class LevelError(UserError, ValueError):
    """Unusable level; the message names the file, the position, the value found and the value needed."""
