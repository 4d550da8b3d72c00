"""Check that every file that a command has left can be read to its end, whatever fault hit the machine."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np

from bc.dataset import BCDataset
from nppsim.errors import UserError, import_optional
from nppsim.io.reading import read_json
from nppsim.levels.level import Level
from nppsim.levels.level_set import INDEX, LevelSet
from nppsim.replays.replay import Replay
from nppsim.replays.replay_set import ReplaySet
from rl.events import read_scalars
from rl.policy import checkpoint
from rl.policy.onnx import SUFFIX as ONNX
from rl.policy.onnx import OnnxPolicy


class IntegrityError(UserError, ValueError):
    """A damaged or incomplete file."""


def damaged(folder: Path) -> list[str]:
    """Return each unreadable file at or below ``folder``, with the reason; hidden and temporary files are skipped."""
    return [
        f"{path.relative_to(folder)}: {reason}"
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".") and (reason := _reason(path))
    ]


def left_over(folder: Path) -> list[str]:
    """Temporary files and folders at or below ``folder``."""
    found = [*folder.rglob("*.tmp"), *folder.rglob(".nppsim_*")]
    return [str(path.relative_to(folder)) for path in sorted(found)]


_FINDINGS = (UserError, OSError, LookupError, RuntimeError, ValueError, TypeError, EOFError, zipfile.BadZipFile)


def _reason(path: Path) -> str:
    """Return why a file cannot be read; "" if it can."""
    read = _READERS.get(path.suffix, _nothing)
    if path.name.startswith("events.out.tfevents"):
        read = _events
    try:
        read(path)
    except _FINDINGS as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return ""


def _nothing(path: Path) -> None:
    """Accept files without a structure of their own."""


def _events(path: Path) -> None:
    read_scalars(path.parent)


def _json(path: Path) -> None:
    read_json(path, IntegrityError, "it was damaged")
    if path.name == INDEX:
        for level in LevelSet.open(path.parent, may_be_empty=True):
            level.to_bytes()


def _json_lines(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for line in text.splitlines():
        json.loads(line)
    if text and not text.endswith("\n"):
        raise ValueError("the last line has no end")


def _hdf5(path: Path) -> None:
    if path.name.startswith("demonstrations-"):
        BCDataset.open(path)
        return
    with h5py.File(path, "r") as file:
        ours = "replays" in file
        file.visititems(lambda name, item: isinstance(item, h5py.Dataset) and np.asarray(item[()]) is None)
    if ours:
        with ReplaySet(path) as replays:
            for replay in replays:
                replay.inputs.tobytes()


def _page(path: Path) -> None:
    if not path.read_text(encoding="utf-8").rstrip().endswith("</html>"):
        raise ValueError("ends before </html>")


def _rows(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    if len({line.count(",") for line in lines}) > 1:
        raise ValueError("rows of different length")


def _archive(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        if bad := archive.testzip():
            raise ValueError(f"checksum of {bad}")


def _picture(path: Path) -> None:
    with import_optional("PIL.Image", "video").open(path) as picture:
        picture.load()


def _film(path: Path) -> None:
    with import_optional("av", "video").open(str(path)) as film:
        if not sum(1 for _ in film.decode(video=0)):
            raise ValueError("no frames")


_READERS: dict[str, Callable[[Path], object]] = {
    ".map": Level.load,
    ".replay": Replay.load,
    ".json": _json,
    ".jsonl": _json_lines,
    ".h5": _hdf5,
    ".hdf5": _hdf5,
    ".html": _page,
    ".csv": _rows,
    ".zip": _archive,
    ".png": _picture,
    ".mp4": _film,
    checkpoint.SUFFIX: checkpoint.load,
    ONNX: OnnxPolicy.load,
}
