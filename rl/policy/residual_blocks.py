"""The shape of deep heads, and its name; needs no torch, so that plans and configurations do not."""

import re
from dataclasses import dataclass

MOST_BLOCKS = 16
_NAME = re.compile(r"deep([1-9]\d?)(-no_residual)?(-no_layer_norm)?")


@dataclass(frozen=True)
class ResidualBlocks:
    """Shape of deep heads.

    count: of blocks, one after the other, in each head.
    residual: each block adds to what it is given, else it replaces it.
    layer_norm: what a block and the output layer are given has mean 0 and variance 1 over its components first.
    """

    count: int
    residual: bool = True
    layer_norm: bool = True

    @property
    def name(self) -> str:
        """As it stands behind the + of an architecture's name."""
        without = ("" if self.residual else "-no_residual", "" if self.layer_norm else "-no_layer_norm")
        return f"deep{self.count}{''.join(without)}"

    @classmethod
    def named(cls, name: str) -> "ResidualBlocks":
        """The shape of that name; ValueError says how names are built."""
        found = _NAME.fullmatch(name)
        if found is None or int(found[1]) > MOST_BLOCKS:
            raise ValueError(f"give deepN with N from 1 to {MOST_BLOCKS}, then -no_residual, -no_layer_norm or both")
        return cls(int(found[1]), not found[2], not found[3])
