"""Rules of the game that the known recordings leave undecided (docs/physics.md, section 8.5).

    bank = LevelBank(levels, rules=Rules(fast_lasers=True))

Each field is one variant of the rules; ``python -m nppsim replays`` plays recordings with each of them.
"""

from collections.abc import Collection
from dataclasses import dataclass, fields

from nppsim.levels import kinds

# Bits of the field ``rules`` of a level in the bank.
FAST_LASERS, ROCKETS_TURN_BACK, OPEN_DOORS_BLOCK = 1, 2, 4


@dataclass(frozen=True)
class Rules:
    """Variants of undecided rules; the defaults agree with all known recordings.

    fast_lasers: laser turrets move 1 px per frame along a surface instead of 0.1.
    rockets_turn_back: a rocket that faces away from the ninja still turns towards it.
    open_doors_block: open doors block the sight and the shots of turrets and shooting drones.
    """

    fast_lasers: bool = False
    rockets_turn_back: bool = False
    open_doors_block: bool = False

    @property
    def bits(self) -> int:
        """The value of a level's ``rules`` in the bank."""
        return (
            FAST_LASERS * self.fast_lasers
            | ROCKETS_TURN_BACK * self.rockets_turn_back
            | OPEN_DOORS_BLOCK * self.open_doors_block
        )


DEFAULT_RULES = Rules()


def variants(types: Collection[int]) -> dict[str, Rules]:
    """Return the variants that can matter on a level with these entity types: name of the changed rule -> Rules."""
    present = set(types)
    shooters = bool(present & {*kinds.TURRETS, *kinds.SHOOTING_DRONES})
    matters = {
        "fast_lasers": kinds.LASER in present,
        "rockets_turn_back": kinds.ROCKET_TURRET in present,
        "open_doors_block": shooters and bool(present & {*kinds.DOORS}),
    }
    return {rule.name: Rules(**{rule.name: True}) for rule in fields(Rules) if matters[rule.name]}
