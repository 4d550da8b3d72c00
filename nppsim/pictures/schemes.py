"""Colour schemes of levels, for the studio, pictures and films.

with colour_scheme("ocean"):
    record("run.mp4", level, inputs)
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

from nppsim.pictures.canvas import PALETTE, Colour, mixed

CLASSIC = "classic"
_TABLE = """
         open   tile   rim    ink    steel  pale   blue   gold   edge   red    amber  cyan   green  band   trace  muted
night    24262f 4b4e5d 646879 eceef4 8b8e9d 3a3d4a 63a4ea f0cf4c b8932a ee5a60 f39a45 4fb6d4 4fc487 ff5f57 5a6c90 989bab
ocean    0f3345 082029 1b5468 e8f6f8 7fa6b0 1c4a5e 58c4f2 ffd75e c99a2e ff6b6b ffa552 7de2d1 5fd39a ff8f6b 3f7d94 86a9b5
sunset   ffe2c6 8c4a62 6d3450 3a1730 9c7286 fff3e6 5a6fb5 f2b632 a8741a c4203c e8702a 4f9fae 4d8f5a d23b3b d9a58f 8f6b78
forest   e4ebd6 45604a 33493a 1d2a20 7d8f7c f4f8ea 3f7f9d e0bd3c 94761a b3362f d9812c 5fa7a0 3f8f4f c9452f a9bd97 7c8a76
neon     140b26 2d1b52 5a35a0 f4eeff 8d7cb8 241640 4cc9f0 ffe14d c7a51c ff3d7f ff9f1c 2de2e6 52f7a0 ff5db1 5b3f94 9b8bc4
paper    f4ead5 b59f7b 94805f 3b2f20 9a8a70 fcf6e8 4a7396 d9ae3b 8f6c17 a83232 cf7a2b 6f9fa0 5f8a52 b8403a cbb68f 8d7d63
contrast ffffff 000000 000000 000000 5a5a5a ffffff 0047d6 ffc800 7a5c00 d40000 e06c00 0090b8 007a33 d40000 8aa0ff 5a5a5a
"""
_FIELDS = {"open": "background", "edge": "gold_edge"}  # columns of the table whose fields have other names


def _read(table: str) -> dict[str, dict[str, Colour]]:
    (*names,), *rows = (line.split() for line in table.strip().splitlines())
    fields = [_FIELDS.get(name, name) for name in names]
    return {scheme: dict(zip(fields, map(_colour, values), strict=True)) for scheme, *values in rows}


def _colour(text: str) -> Colour:
    red, green, blue = bytes.fromhex(text)
    return red, green, blue


SCHEMES: dict[str, dict[str, Colour]] = {CLASSIC: {}} | _read(_TABLE)
"""Name of a scheme -> its colours that differ from the defaults of ``Palette``."""
_GLOW = 0.35  # share of ``red`` in ``glow``, the colour around a beam; the rest is ``background``


@contextmanager
def colour_scheme(scheme: str) -> Iterator[None]:
    """Draw pictures in the colours of a scheme, in this process, until the block ends."""
    usual, chosen = asdict(PALETTE), dict(SCHEMES[scheme])
    if chosen:
        chosen["glow"] = mixed(chosen["background"], chosen["red"], _GLOW)
    vars(PALETTE).update(chosen)
    try:
        yield
    finally:
        vars(PALETTE).update(usual)


def stylesheet() -> str:
    """Return the schemes as a stylesheet: ``--scene-NAME`` for elements with the attribute ``data-colours``."""
    rules = []
    for scheme, colours in SCHEMES.items():
        lines = [f"--scene-{_css(name)}: #{bytes(colour).hex()};" for name, colour in colours.items()]
        rules.append(f':root[data-colours="{scheme}"] {{ {" ".join(lines)} }}')
    return "\n".join(rules) + "\n"


def _css(name: str) -> str:
    return {"background": "open"}.get(name, name.replace("_", "-"))
