"""Pictures of many levels on one page."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from nppsim.errors import import_optional
from nppsim.levels.level import Level
from nppsim.pictures.canvas import PALETTE
from nppsim.pictures.figures import NinjaPose
from nppsim.pictures.region import TILE, RenderError, used_region
from nppsim.pictures.scene import Scene
from nppsim.pictures.texts import font, outcome_look, pen_on, wrapped

if TYPE_CHECKING:
    from PIL.Image import Image

_CELL = (352, 200)  # maximum width and height of the picture of a level, px
_GAP = 12  # px between pictures
_LINE = 18  # height of a line of text, px


def contact_sheet(
    levels: Sequence[Level],
    labels: Sequence[str],
    columns: int = 4,
    *,
    notes: Sequence[str] = (),
    outcomes: Sequence[str] = (),
) -> "Image":
    """Draw the reachable regions of many levels on one page, all at the same scale: a Pillow RGB image.

    labels: one text per level.
    notes: a second text per level, for example its par; () for no notes.
    outcomes: outcome ("won", "died", ...) per level, which determines the colour of its note; () for no outcomes.
    Raises RenderError if the numbers of levels and texts differ or ``columns`` is below 1.
    """
    notes, outcomes = notes or [""] * len(levels), outcomes or [""] * len(levels)
    for name, given in {"labels": labels, "notes": notes, "outcomes": outcomes}.items():
        if len(given) != len(levels):
            raise RenderError(f"contact_sheet got {len(levels)} levels but {len(given)} {name}; give one per level")
    if columns < 1:
        raise RenderError(f"contact_sheet needs at least 1 column, got columns={columns}")
    regions = [used_region(level) for level in levels]
    fits = [min(_CELL[0] // (right - left), _CELL[1] // (bottom - top)) for left, top, right, bottom in regions]
    ppt = max(min([*fits, 2 * TILE]), 1)
    columns = min(columns, max(len(levels), 1))
    width = _CELL[0]
    new = import_optional("PIL.Image", "video").new
    face, pen = font(14), pen_on(new("RGB", (1, 1)))
    captions = [wrapped(pen, label, face, width) for label in labels]
    rows = [range(start, min(start + columns, len(levels))) for start in range(0, len(levels), columns)]
    pictures = [max((regions[i][3] - regions[i][1]) * ppt for i in row) for row in rows]
    texts = [_LINE * max(len(captions[i]) + bool(notes[i]) for i in row) + 4 for row in rows]
    page = new(
        "RGB", (columns * (width + _GAP) + _GAP, sum(pictures) + sum(texts) + _GAP * (len(rows) + 1)), PALETTE.panel
    )
    pen, top = pen_on(page), _GAP
    for row, height, below in zip(rows, pictures, texts, strict=True):
        for column, i in enumerate(row):
            left = _GAP + column * (width + _GAP)
            scene = Scene(levels[i], ppt, regions[i])
            picture = scene.picture(scene.looks, NinjaPose(levels[i].spawn), scene.aims)
            page.paste(PALETTE.tile, (left, top, left + width, top + height))
            page.paste(picture, (left + (width - picture.width) // 2, top + (height - picture.height) // 2))
            lines = [(text, PALETTE.text) for text in captions[i]]
            if notes[i]:
                lines.append((notes[i], outcome_look(outcomes[i])[1]))
            for n, (text, colour) in enumerate(lines):
                pen.text((left + 2, top + height + 3 + n * _LINE), text, colour, face)
        top += math.ceil(height + below + _GAP)
    return page
