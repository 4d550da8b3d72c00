"""Ids of the game's levels."""

import pytest

from nppsim.levels.ids import TABS, episode_of, level_id


@pytest.mark.parametrize(
    ("file", "number", "known"),
    [  # pairs of number and id that the community has published
        ("S", 310, "S-C-12-00"),
        ("S", 489, "S-C-19-04"),
        ("S2", 149, "SU-E-05-04"),
        ("S2", 237, "SU-C-09-02"),
        # first and last levels
        ("SI", 0, "SI-A-00-00"),
        ("SI", 124, "SI-E-04-04"),
        ("S", 500, "S-X-00-00"),
        ("SL", 599, "SL-X-19-04"),
        ("SS", 26, "?-B-05"),
        ("SS2", 119, "!-X-19"),
    ],
)
def test_level_id_known_positions(file, number, known):
    assert level_id(file, number, TABS[file].levels) == known


def test_level_ids_of_game_are_unique():
    all_ids = [level_id(file, number, tab.levels) for file, tab in TABS.items() for number in range(tab.levels)]
    assert len(set(all_ids)) == sum(tab.levels for tab in TABS.values())


@pytest.mark.parametrize(("file", "count"), [("SL2", 240), ("S", 125), ("PACK", 600)])
def test_level_id_unknown_file_is_plain(file, count):
    assert level_id(file, 12, count) == f"{file}-012"


def test_episode_of_tabs_with_episodes():
    ids = ("SI-A-00-00", "S-X-19-04", "?-B-05", "SL2-012", "my-own-pack-003", "")
    assert [episode_of(one) for one in ids] == ["SI-A-00", "S-X-19", "", "", "", ""]
