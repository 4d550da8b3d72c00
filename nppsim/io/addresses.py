"""Addresses of entries in files, ``FILE#ENTRY`` and ``FOLDER#ENTRY``: ``S.txt#12``, ``runs.h5#3``, ``GAME#S-C-12-03``."""

import os
from pathlib import Path
from typing import NamedTuple

CONTAINERS = (".txt", ".h5")  # usual suffixes of files with entries: campaign files and replay sets


class Address(NamedTuple):
    """A path, and the entry of it that is meant; "" for the whole file or folder."""

    path: str
    entry: str

    @property
    def suffix(self) -> str:
        """Suffix of the path, in lower case."""
        return Path(self.path).suffix.lower()


def parse_address(address: str | os.PathLike) -> Address:
    """Split an address at the "#" between path and entry; names of files, folders and levels may contain "#", too.

    An existing path is not split.  Otherwise, the path is the longest part before a "#" that is an existing file, else
    that has the suffix of a container, else that is an existing folder.
    """
    text = os.fspath(address)
    if not os.path.exists(text):
        parts = [text[:i] for i in range(len(text) - 2, 0, -1) if text[i] == "#"]
        for matches in (os.path.isfile, lambda part: part.lower().endswith(CONTAINERS), os.path.isdir):
            if path := next(filter(matches, parts), ""):
                return Address(path, text[len(path) + 1 :])
    return Address(text, "")
