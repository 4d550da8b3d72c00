"""The stage: the tiles of a level, the border around them, and the two grids that cover tiles and border.

Source: docs/physics.md, section 1.1.
"""

TILE = 24  # px, width and height of a tile and of a cell
HALF_CELL = 12  # px
COLUMNS = 42  # tiles of a level
ROWS = 23

# Cells: a level's tiles and a border of one full tile on every side.
CELLS_X = COLUMNS + 2
CELLS_Y = ROWS + 2
NUM_CELLS = CELLS_X * CELLS_Y  # cell (cx, cy) has number cx * CELLS_Y + cy
STAGE_WIDTH = float(TILE * CELLS_X)  # px
STAGE_HEIGHT = float(TILE * CELLS_Y)

# Half-cells, and the grid lines between and around them.
HALF_CELLS_X = 2 * CELLS_X
HALF_CELLS_Y = 2 * CELLS_Y
LINES_X = HALF_CELLS_X + 1
LINES_Y = HALF_CELLS_Y + 1
