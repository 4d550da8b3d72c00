"""Addresses of entries in files."""

import pytest

from nppsim.io.addresses import parse_address


@pytest.mark.parametrize(
    ("existing", "address", "path", "entry"),
    [
        ((), "S.txt#12", "S.txt", "12"),
        ((), "S.txt#Level #1", "S.txt", "Level #1"),
        ((), "runs#2/s.h5#1", "runs#2/s.h5", "1"),
        (("runs/",), "runs#2/s.h5#1", "runs#2/s.h5", "1"),
        (("runs/", "runs#2/s.h5"), "runs#2/s.h5#1", "runs#2/s.h5", "1"),
        (("a.txt", "a.txt#1"), "a.txt#1", "a.txt#1", ""),
        (("pack.csv",), "pack.csv#x#y", "pack.csv", "x#y"),
        (("game/",), "game#S-C-12-03", "game", "S-C-12-03"),
        (("game#2/",), "game#2#S-C-12-03", "game#2", "S-C-12-03"),
        ((), "level #1.map", "level #1.map", ""),
        ((), "S.txt#", "S.txt#", ""),
    ],
)
def test_parse_address_of_existing_and_missing_paths(tmp_path, monkeypatch, existing, address, path, entry):
    monkeypatch.chdir(tmp_path)
    for name in existing:
        place = tmp_path / name
        if name.endswith("/"):
            place.mkdir()
        else:
            place.parent.mkdir(exist_ok=True)
            place.touch()
    assert parse_address(address) == (path, entry)
