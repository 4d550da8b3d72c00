"""Pictures and film frames for people, drawn with Pillow (extra ``video``).

    draw_level(level).save("level.png")                       # 1056 x 600
    draw_route(level, nppsim.simulate(level, inputs))         # the way taken, coloured by time, jumps marked
    draw_two_routes(level, (run_a, run_b), ("A", "B"))        # two ways, broad blue and narrow red, and where they part
    contact_sheet(levels, labels, columns=4)                  # many levels on one page
    for picture in frames(level, inputs, fps=30): ...         # uint8[H, W, 3], for a film

Everything is drawn ``OVERSAMPLE`` times too large and averaged down.  A film draws its background once; per frame only
the boxes around what changed (the ninja, movers, a switch just taken) are drawn again.  ``scale`` is rounded to whole
output pixels per tile, so that tile borders fall on pixel borders.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from nppsim.pictures.figures import (
    MOVERS,
    PALETTE,
    Canvas,
    DrawnEntity,
    EntityLook,
    NinjaLook,
    RenderError,
    draw_entity,
    draw_ninja,
    initial_look,
    level_entities,
    turned,
)
from nppsim.pictures.region import STAGE, TILE, Box, stage_tiles, tile_masks, used_region, widened

__all__ = [
    "RenderError",
    "contact_sheet",
    "draw_level",
    "draw_route",
    "draw_two_routes",
    "film_steps",
    "frames",
    "used_region",
]

OVERSAMPLE = 4
FRAMES_PER_SECOND = 60  # of the physics
FILM_SIZE = (1056, 600)  # px; a film's stage is enlarged (at most twice) towards this size, times ``scale``
PANEL_HEIGHT = 44  # px of the strip below a film

_BACKGROUND, _SOLID, _RIM = 0, 1, 2
_DRAWN_REACH = 22  # level px around an entity's or the ninja's centre that its drawing may touch
_ROUTE_COLOURS = ((58, 76, 192), (23, 143, 178), (44, 160, 96), (226, 160, 32), (214, 62, 50))  # start -> end
_TWO_COLOURS = (_ROUTE_COLOURS[0], _ROUTE_COLOURS[-1])
_OUTCOME = {"won": ("finished", PALETTE.green), "died": ("died", PALETTE.red), "timeout": ("time is up", PALETTE.amber)}


def draw_level(level, scale: float = 1.0, *, crop: bool = False, ninja: bool = True):
    """Picture of a level at its start: a Pillow RGB image of 1056 x 600 px times ``scale`` (smaller with ``crop``).

    crop: show only the part of the stage that can be reached.  ninja: draw it at the spawn.
    Raises RenderError if Pillow is missing.
    """
    scene = _Scene(level, _pixels_per_tile(scale), used_region(level) if crop else (0, 0, *STAGE))
    x, y = level.spawn
    return scene.picture(scene.looks, NinjaLook(x, y) if ninja else None)


def draw_route(level, run, scale: float = 1.0, *, crop: bool = False, title: str = "", outcome: str | None = None):
    """Picture of a level with the way the ninja took: a Pillow RGB image.

    run: as returned by ``nppsim.simulate``.  The line's colour runs from blue (start) to red (end of the run); open
    circles mark jumps, a ring the start, a disc in the colour of the outcome the end.  Entities are drawn as they
    are at the end of the run.  outcome: instead of ``run.outcome``, e.g. "timeout".  A strip below explains all this.
    """
    region = widened(used_region(level, run.position)) if crop else (0, 0, *STAGE)
    ppt = _film_tile(region, scale) if crop else _pixels_per_tile(scale)
    scene = _Scene(level, ppt, region)
    looks = scene.looks_at(run, run.frames) if run.frames else scene.looks
    points = np.vstack([[level.spawn], run.position])
    base = scene.picture(looks, None)
    canvas, box = scene.canvas((0, 0, base.width, base.height))
    canvas.image.paste(base.resize(canvas.image.size))
    _paint_route(canvas, points, np.asarray(run.ninja_state))
    outcome = outcome or run.outcome
    colour = _OUTCOME.get(outcome, ("", PALETTE.muted))[1]
    end = points[-1]
    canvas.disc(*end, 7.5, PALETTE.pale)
    canvas.disc(*end, 5.5, colour)
    base.paste(canvas.finish(OVERSAMPLE), box[:2])
    return _with_legend(base, run, title, outcome)


def draw_two_routes(level, runs, labels: tuple[str, str], scale: float = 1.0, *, parted: int | None = None):
    """Picture of a level with two ways through it, broad blue and narrow red: a Pillow RGB image.

    runs: two results of ``nppsim.simulate``.  labels: their names.  parted: the frame, from 1, in which they part; a ring
    marks the place.  Entities are drawn as they are at the start.  Discs mark the ends, in the colours of the outcomes;
    the strip below names the colours.
    """
    scene = _Scene(level, _pixels_per_tile(scale), (0, 0, *STAGE))
    base = scene.picture(scene.looks, None)
    canvas, box = scene.canvas((0, 0, base.width, base.height))
    canvas.image.paste(base.resize(canvas.image.size))
    for run, colour, width in zip(runs, _TWO_COLOURS, (5.0, 1.8), strict=True):  # both show where they are the same
        points = np.vstack([[level.spawn], run.position])
        canvas.line(points.tolist(), colour, width)
        canvas.disc(*points[-1], 7.5, colour)
        canvas.disc(*points[-1], 5.0, _OUTCOME.get(run.outcome, ("", PALETTE.muted))[1])
    canvas.ring(*level.spawn, 6.2, 2.4, PALETTE.ink)
    if parted is not None:
        canvas.ring(*runs[0].position[parted - 1], 10.0, 2.4, PALETTE.amber)
    base.paste(canvas.finish(OVERSAMPLE), box[:2])
    return _with_two_labels(base, runs, labels)


def contact_sheet(levels: Sequence, labels: Sequence[str], columns: int = 4, *, cell: tuple[int, int] = (352, 200)):
    """Many levels on one page, each cropped to its used region: a Pillow RGB image.

    labels: one short text per level.  cell: width and height (px) of each picture.  Raises ValueError if the counts
    of levels and labels differ or ``columns`` is below 1.
    """
    if len(levels) != len(labels):
        raise ValueError(f"contact_sheet got {len(levels)} levels but {len(labels)} labels; give one label per level")
    if columns < 1:
        raise ValueError(f"contact_sheet needs at least 1 column, got columns={columns}")
    image, draw, font = _pillow()
    (width, height), gap, caption = cell, 12, 22
    columns = min(columns, max(len(levels), 1))
    rows = max(math.ceil(len(levels) / columns), 1)
    page = image.new("RGB", (columns * (width + gap) + gap, rows * (height + caption + gap) + gap), PALETTE.panel)
    pen = draw.Draw(page)
    for i, (level, label) in enumerate(zip(levels, labels, strict=True)):
        left = gap + (i % columns) * (width + gap)
        top = gap + (i // columns) * (height + caption + gap)
        region = used_region(level)
        ppt = max(min(width // (region[2] - region[0]), height // (region[3] - region[1]), 2 * TILE), 1)
        scene = _Scene(level, ppt, region)
        picture = scene.picture(scene.looks, NinjaLook(*level.spawn))
        page.paste(PALETTE.tile, (left, top, left + width, top + height))
        page.paste(picture, (left + (width - picture.width) // 2, top + (height - picture.height) // 2))
        pen.text((left + 2, top + height + 3), _fit(pen, label, font(14), width), PALETTE.text, font(14))
    return page


def film_steps(num_frames: int, fps: int) -> list[int]:
    """Physics frames shown by a film: 0 (the spawn), then every 60 / fps frames, and always the last.

    fps: 1..60; others raise ValueError.  At 30 every second frame is shown, so that playback is in real time.
    """
    if not 1 <= fps <= FRAMES_PER_SECOND:
        raise ValueError(f"fps={fps} is outside 1..{FRAMES_PER_SECOND}, the frames per second of the physics")
    count = math.ceil(num_frames * fps / FRAMES_PER_SECOND)
    return [min(round(i * FRAMES_PER_SECOND / fps), num_frames) for i in range(count + 1)]


def frames(level, inputs, fps: int = 30, scale: float = 1.0, *, title: str = "", category: str = "",
           outcome: str | None = None, run=None) -> Iterator[np.ndarray]:  # fmt: skip
    """The pictures of a film, one by one: uint8[H, W, 3], H and W even; ``film_steps`` says which frames they show.

    inputs: uint8[frames], N++ input bytes.  The camera shows the reachable part of the stage.  title, category: texts
    below it, beside the time and the keys held.  outcome: "won", "died" or "timeout", shown on the last picture
    (default: the run's own).  run: the result of ``nppsim.simulate(level, inputs)`` where the caller has it already.
    """
    if run is None:
        import nppsim

        run = nppsim.simulate(level, inputs)
    region = widened(used_region(level, run.position))
    scene = _Scene(level, _film_tile(region, scale), region)
    panel = _Panel(scene.width, scale, title, category)
    ninja = _ninja_looks(level, run, inputs)
    trace = np.vstack([[level.spawn], run.position])
    background = scene.picture(scene.looks, None, movers=False)
    looks, shown = scene.looks, 0
    for step in film_steps(run.frames, fps):
        if step:
            now = scene.looks_at(run, step)
            for entity in scene.still:
                if now[entity] != looks[entity]:
                    scene.repaint(background, _around(entity), now, trace[: step + 1])
            scene.repaint(background, _bounds(trace[shown : step + 1], 2), now, trace[: step + 1])
            looks, shown = now, step
        picture = background.copy()
        moving = [_bounds([(looks[entity].x, looks[entity].y)], _DRAWN_REACH) for entity in scene.moving]
        for box in [*moving, _bounds([trace[step]], _DRAWN_REACH)]:
            scene.repaint(picture, box, looks, trace[: step + 1], ninja[step])
        last = step == run.frames
        held = int(inputs[step - 1]) if step else 0
        strip = panel.draw(step, held, (outcome or run.outcome) if last else None)
        yield np.concatenate([np.asarray(picture), strip])


# ---------------------------------------------------------------------------------------------------------------------
# Drawing a level, whole or in boxes


class _Scene:
    """A level prepared for drawing: tile samples of the camera's region, entities, and their looks at the start."""

    def __init__(self, level, ppt: int, region: Box):
        self.ppt, self.region = ppt, region
        left, top, right, bottom = region
        self.width, self.height = (right - left) * ppt, (bottom - top) * ppt
        self.entities = level_entities(level)
        self.looks = {entity: initial_look(entity) for entity in self.entities}
        self.moving = [entity for entity in self.entities if entity.kind in MOVERS]
        self.still = [entity for entity in self.entities if entity.kind not in MOVERS]
        self._classes = _tile_classes(level.tiles, region, ppt * OVERSAMPLE)
        self._columns = None

    def looks_at(self, run, frame: int) -> dict[DrawnEntity, EntityLook]:
        """The looks after ``frame`` (from 1) frames of a run."""
        if self._columns is None:
            self._columns = {tuple(map(int, key)): i for i, key in enumerate(run.entities)}
        state, place = run.entity_state[frame - 1], run.entity_position[frame - 1]
        looks = {}
        for entity, start in self.looks.items():
            column = self._columns.get((entity.kind, entity.index))
            if column is None:  # a kind that the simulator does not have: scenery
                looks[entity] = start
                continue
            bits = int(state[column])
            own = (bits >> 1) & 7
            looks[entity] = EntityLook(bool(bits & 1), own - 8 * (own > 3), bool(bits & 16), *map(float, place[column]))
        for entity in looks:
            if entity.kind == 3:
                switch = self._columns.get((4, entity.index))
                barred = switch is None or bool(state[switch] & 1)
                looks[entity] = replace(looks[entity], closed=barred)
        return looks

    def picture(self, looks, ninja: NinjaLook | None, *, movers: bool = True):
        """The whole region, in bands so that the oversampled picture stays small."""
        picture = _pillow()[0].new("RGB", (self.width, self.height))
        for top in range(0, self.height, 4 * self.ppt):
            box = (0, top, self.width, min(top + 4 * self.ppt, self.height))
            picture.paste(self._draw(box, looks, (), ninja, movers), box[:2])
        return picture

    def repaint(self, picture, area, looks, trace, ninja: NinjaLook | None = None):
        """Draw the part of ``picture`` around ``area`` (left, top, right, bottom in level px) again.

        Without a ninja the movers are left out too: that is the background of a film.
        """
        k = self.ppt / TILE
        left, top = self.region[0] * TILE, self.region[1] * TILE
        box = (
            max(math.floor((area[0] - left) * k), 0),
            max(math.floor((area[1] - top) * k), 0),
            min(math.ceil((area[2] - left) * k), self.width),
            min(math.ceil((area[3] - top) * k), self.height),
        )
        if box[0] < box[2] and box[1] < box[3]:
            picture.paste(self._draw(box, looks, trace, ninja, ninja is not None), box[:2])

    def canvas(self, box: Box) -> tuple[Canvas, Box]:
        """An oversampled canvas with the tiles of a box (output px of this scene)."""
        left, top, right, bottom = (OVERSAMPLE * v for v in box)
        colours = np.array([PALETTE.background, PALETTE.tile, PALETTE.rim], dtype=np.uint8)
        image = _pillow()[0].fromarray(colours[self._classes[top:bottom, left:right]])
        k = self.ppt / TILE
        origin = (self.region[0] * TILE + box[0] / k, self.region[1] * TILE + box[1] / k)
        return Canvas(image, origin, k * OVERSAMPLE), box

    def _draw(self, box, looks, trace, ninja, movers):
        canvas, _ = self.canvas(box)
        k = self.ppt / TILE
        left, top = canvas.origin
        right, bottom = left + (box[2] - box[0]) / k, top + (box[3] - box[1]) / k
        for piece in _pieces_inside(trace, (left - 3, top - 3, right + 3, bottom + 3)):
            canvas.line(piece, PALETTE.trace, 1.6)
        for entity in self.entities:
            look = looks[entity]
            is_mover = entity.kind in MOVERS
            if is_mover and not movers:
                continue
            area = _bounds([(look.x, look.y)], _DRAWN_REACH) if is_mover else _around(entity)
            if area[0] < right and area[2] > left and area[1] < bottom and area[3] > top:
                draw_entity(canvas, entity, look)
        if ninja is not None:
            draw_ninja(canvas, ninja)
        return canvas.finish(OVERSAMPLE)


def _tile_classes(tiles, region, samples):
    """uint8[rows * samples, columns * samples]: background, solid or rim, at the region's sample points."""
    left, top, right, bottom = region
    # A ring of full tiles around: no rim along the picture's own edge.
    ids = np.pad(stage_tiles(tiles)[top:bottom, left:right], 1, constant_values=1)
    solid = tile_masks(samples)[ids].transpose(0, 2, 1, 3).reshape(ids.shape[0] * samples, ids.shape[1] * samples)
    width = max(1, round(samples / TILE * 1.1))
    core = solid.copy()
    for shift in (-width, width):
        core &= np.roll(solid, shift, axis=0)
        core &= np.roll(solid, shift, axis=1)
    classes = np.where(core, _SOLID, np.where(solid, _RIM, _BACKGROUND)).astype(np.uint8)
    return np.ascontiguousarray(classes[samples:-samples, samples:-samples])


def _around(entity):
    points = [(entity.x, entity.y)]
    if entity.switch_x:
        points.append((entity.switch_x, entity.switch_y))
    return _bounds(points, _DRAWN_REACH)


def _bounds(points, reach):
    points = np.asarray(points)
    low, high = points.min(axis=0) - reach, points.max(axis=0) + reach
    return (*low.tolist(), *high.tolist())


def _pieces_inside(trace, area):
    """The runs of consecutive points whose segments come near ``area``."""
    if len(trace) < 2:
        return []
    points = np.asarray(trace)
    low, high = np.minimum(points[:-1], points[1:]), np.maximum(points[:-1], points[1:])
    near = (low[:, 0] < area[2]) & (high[:, 0] > area[0]) & (low[:, 1] < area[3]) & (high[:, 1] > area[1])
    edges = np.flatnonzero(np.diff(np.concatenate([[0], near.astype(np.int8), [0]])))
    return [points[start : stop + 1].tolist() for start, stop in edges.reshape(-1, 2)]


def _ninja_looks(level, run, inputs) -> list[NinjaLook]:
    """The ninja's pose after 0, 1, ... frames: which way it faces, its stride, its tilt on slopes."""
    x, y = level.spawn
    looks = [NinjaLook(x, y)]
    facing, stride, tilt = 1, 0.0, 0.0
    for i in range(run.frames):
        state, (vx, _) = int(run.ninja_state[i]), run.velocity[i]
        wanted = -1 if inputs[i] & 4 else int(bool(inputs[i] & 2))
        if state in (1, 5) and wanted:
            facing = wanted
        elif state != 5 and abs(vx) > 0.01:
            facing = 1 if vx > 0 else -1
        stride += abs(vx) / 5.2  # radians; one whole stride per 33 px
        if run.airborne[i]:
            tilt = 0.0 if state in (3, 5) else 0.9 * tilt
        else:
            fx, fy = run.floor_normal[i]
            tilt = math.atan2(fy, fx) + math.pi / 2
        looks.append(NinjaLook(*map(float, run.position[i]), state, facing, stride, tilt))
    return looks


# ---------------------------------------------------------------------------------------------------------------------
# Route, texts


def _ramp(t: float):
    """Colour at time t in 0..1 of the route."""
    at = min(max(t, 0.0), 1.0) * (len(_ROUTE_COLOURS) - 1)
    i = min(int(at), len(_ROUTE_COLOURS) - 2)
    return tuple(round(a + (b - a) * (at - i)) for a, b in zip(_ROUTE_COLOURS[i], _ROUTE_COLOURS[i + 1], strict=True))


def _paint_route(canvas, points, states):
    canvas.line(points.tolist(), PALETTE.pale, 4.6)  # a light casing keeps the line visible on tiles
    for start in range(0, len(points) - 1, 4):
        piece = points[start : start + 5].tolist()
        canvas.line(piece, _ramp(start / max(len(points) - 1, 1)), 2.6)
    before = np.concatenate([[0], states[:-1]])
    for i in np.flatnonzero((states == 3) & (before != 3)):
        canvas.disc(*points[i], 4.2, PALETTE.ink)
        canvas.disc(*points[i], 2.7, PALETTE.pale)
    canvas.disc(*points[0], 7.5, PALETTE.pale)
    canvas.ring(*points[0], 6.2, 2.4, _ROUTE_COLOURS[0])


def _with_legend(picture, run, title, outcome):
    image, draw, font = _pillow()
    page = image.new("RGB", (picture.width, picture.height + PANEL_HEIGHT), PALETTE.panel)
    page.paste(picture, (0, 0))
    pen = draw.Draw(page)
    middle = picture.height + PANEL_HEIGHT // 2
    word, colour = _OUTCOME.get(outcome, ("", PALETTE.muted))
    seconds = f"{run.frames / FRAMES_PER_SECOND:.2f} s"
    bar = min(140, page.width // 5)
    right = page.width - 14
    if word:
        pen.text((right, middle), word, colour, font(15), anchor="rm")
        right -= pen.textlength(word, font(15)) + 16
    pen.text((right, middle), seconds, PALETTE.text, font(15), anchor="rm")
    right = round(right - pen.textlength(seconds, font(15)) - 10)
    for i in range(bar):
        pen.line(((right - bar + i, middle - 3), (right - bar + i, middle + 3)), _ramp(i / bar))
    left = right - bar - 10
    pen.text((left, middle), "0", PALETTE.text, font(15), anchor="rm")
    pen.text((14, middle), _fit(pen, title, font(15), left - 40), PALETTE.text, font(15), anchor="lm")
    return page


def _with_two_labels(picture, runs, labels):
    image, draw, font = _pillow()
    page = image.new("RGB", (picture.width, picture.height + PANEL_HEIGHT), PALETTE.panel)
    page.paste(picture, (0, 0))
    pen = draw.Draw(page)
    middle = picture.height + PANEL_HEIGHT // 2
    for i, (run, label, colour) in enumerate(zip(runs, labels, _TWO_COLOURS, strict=True)):
        left, room = 14 + i * page.width // 2, page.width // 2 - 60
        pen.line(((left, middle), (left + 22, middle)), colour, 4)
        word = _OUTCOME.get(run.outcome, ("inputs end", PALETTE.muted))[0]
        text = f"{run.frames / FRAMES_PER_SECOND:.2f} s, {word}: {label}"
        pen.text((left + 30, middle), _fit(pen, text, font(15), room), PALETTE.text, font(15), anchor="lm")
    return page


def _fit(pen, text, font, width):
    """The text, shortened with an ellipsis to a width (px)."""
    if pen.textlength(text, font) <= width:
        return text
    while text and pen.textlength(text + "…", font) > width:
        text = text[:-1]
    return text + "…" if text else ""


class _Panel:
    """The strip below a film: title and category, the three keys, time, and at the end the outcome."""

    def __init__(self, width: int, scale: float, title: str, category: str):
        image, draw, font = _pillow()
        self._draw = draw
        self._unit = unit = max(scale, 0.5)
        self._height = 2 * round(PANEL_HEIGHT * unit / 2)
        self._large, self._small = font(round(18 * unit)), font(round(13 * unit))
        self._keys = [self._key_caps(image, held) for held in range(8)]
        self._key_left = (width - self._keys[0].width) // 2
        self._base = image.new("RGB", (width, self._height), PALETTE.panel)
        pen = draw.Draw(self._base)
        room, left = self._key_left - round(24 * unit), round(14 * unit)
        lines = [text for text in (title, category) if text]
        for i, text in enumerate(lines):
            y = self._height // 2 + round(8.5 * unit * (2 * i - len(lines) + 1))
            colour = PALETTE.muted if i else PALETTE.text
            pen.text((left, y), _fit(pen, text, self._small, room), colour, self._small, anchor="lm")

    def draw(self, frame: int, held: int, outcome: str | None) -> np.ndarray:
        """uint8[height, width, 3] at a physics frame, with the input byte held; outcome: None while running."""
        strip = self._base.copy()
        strip.paste(self._keys[held & 7], (self._key_left, (self._height - self._keys[0].height) // 2))
        pen, right = self._draw.Draw(strip), strip.width - round(14 * self._unit)
        seconds = f"{frame / FRAMES_PER_SECOND:.2f} s"
        pen.text((right, self._height // 2), seconds, PALETTE.text, self._large, anchor="rm")
        if outcome in _OUTCOME:
            word, colour = _OUTCOME[outcome]
            right -= round(74 * self._unit)
            length = pen.textlength(word, self._small)
            box = (right - length - 16 * self._unit, self._height * 0.24, right, self._height * 0.76)
            pen.rounded_rectangle(box, 4 * self._unit, fill=colour)
            pen.text((right - 8 * self._unit, self._height // 2), word, PALETTE.pale, self._small, anchor="rm")
        return np.asarray(strip)

    def _key_caps(self, image, held):
        """Three key caps, left, jump, right; those held are filled."""
        size = self._unit * 26 / 2
        width, height = round(100 * self._unit), round(30 * self._unit)
        picture = image.new("RGB", (width * OVERSAMPLE, height * OVERSAMPLE), PALETTE.panel)
        canvas = Canvas(picture, (0, 0), OVERSAMPLE)
        for i, (bit, turn) in enumerate(((4, -1), (1, 0), (2, 1))):
            x, y = width / 2 + (i - 1) * 33 * self._unit, height / 2
            pressed = bool(held & bit) and not (bit == 2 and held & 4)  # left wins over right
            fill, edge = (PALETTE.gold, PALETTE.gold) if pressed else (None, (86, 88, 100))
            canvas.box(x, y, size, fill, edge, 1.4 * self._unit, corner=4 * self._unit)
            tip = size * 0.42
            arrow = ((-tip, tip * 0.6), (0, -tip * 0.75), (tip, tip * 0.6))
            colour = PALETTE.panel if pressed else PALETTE.muted
            canvas.polygon(turned(arrow, turn * math.pi / 2, x, y), colour)
        return canvas.finish(OVERSAMPLE)


# ---------------------------------------------------------------------------------------------------------------------


def _pixels_per_tile(scale: float) -> int:
    if not scale > 0:
        raise ValueError(f"scale={scale} must be positive; 1.0 draws the stage at {FILM_SIZE[0]} x {FILM_SIZE[1]} px")
    return max(1, round(TILE * scale))


def _film_tile(region: Box, scale: float) -> int:
    """Even number of pixels per tile that shows a region as large as fits the film size, at most enlarged twice."""
    fit = min(FILM_SIZE[0] / (region[2] - region[0]), FILM_SIZE[1] / (region[3] - region[1]), 2 * TILE)
    return max(2, 2 * int(fit * scale / 2))


def _pillow():
    """(PIL.Image, PIL.ImageDraw, a function giving the built-in font at a size in px)."""
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError as error:
        raise RenderError('drawing needs Pillow: install the extra "video", e.g. pip install -e ".[video]"') from error
    return Image, ImageDraw, lambda size: ImageFont.load_default(size)
