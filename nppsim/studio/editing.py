"""Server side of the editor: save levels in folders.

GET  /api/edit/folders  {"folders": names of the folders in which levels can be saved}
POST /api/edit/save     {"map": base64 of the level's file, "folder": index in "folders", "name", "replace"}
                        -> {"saved": file name}, or {"exists": file name} if the file exists and "replace" is false
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Route

from nppsim.studio.documents import level_of
from nppsim.studio.errors import StudioError, answering, read_message

if TYPE_CHECKING:
    from nppsim.studio.library import Library

_NAME = re.compile(r"\w[\w .-]{0,79}")
_SUFFIXES = (".map", ".level")


async def _save(request: Request) -> JSONResponse:
    message = await read_message(request, {"map": str, "folder": int, "name": str, "replace": bool})
    return JSONResponse(await run_in_threadpool(_write, request.app.state.studio.library, message))


def _write(library: "Library", message: dict) -> dict:
    made = level_of(message["map"])
    path = place_of(library.folders, message["folder"], message["name"])
    replaced = path.exists()
    if replaced and not message["replace"]:
        return {"exists": path.name}
    made.save(path)
    if replaced:
        library.reread()
    library.add(made, path.stem)
    return {"saved": path.name}


def place_of(folders: list[Path], number: int, name: str) -> Path:
    """Return the path of file ``name`` in ``folders[number]``.

    Raises StudioError if ``number`` is out of range or ``name`` is invalid.
    """
    if not 0 <= number < len(folders):
        raise StudioError("there is no such folder; start the studio with --levels FOLDER")
    if not _NAME.fullmatch(name):
        raise StudioError(
            f"{name!r} is not a valid name: use a letter, digit or _, then at most 79 of these, spaces, . and -"
        )
    return folders[number] / (name if name.lower().endswith(_SUFFIXES) else name + _SUFFIXES[0])


routes: list[BaseRoute] = [
    Route("/api/edit/folders", answering(lambda studio, _: {"folders": list(map(str, studio.library.folders))})),
    Route("/api/edit/save", _save, methods=["POST"]),
]
