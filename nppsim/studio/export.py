"""Export the studio as a folder of files that any static host serves, from any path; the page works offline after a visit.

The folder mirrors the addresses of the server: studio/static and wasm have the page's files, data/PATH.json the answers to
GET /api/PATH, with "-" instead of "/".  The binaries are compressed, since many hosts do not compress them.
"""

import gzip
import hashlib
import json
import re
import warnings
from pathlib import Path
from typing import Any

from nppsim.errors import ConfigError, InputWarning
from nppsim.io.files import check_output_folder, write_bytes
from nppsim.pictures.schemes import stylesheet
from nppsim.studio.agent_registry import AgentRegistry
from nppsim.studio.library import Library
from nppsim.studio.modules import STATIC, WASM, index_page

INDEX, WORKER = "index.html", "worker.js"
_STATE = {"follows": False, "compiled": None, "demonstrations": False, "folders": False}
_COMPRESSED = ".gz"
_FILES_LINE = re.compile(
    r'const \[VERSION, FILES\] = \["[0-9a-f]{16}", (\[.*\])\];'
)  # first line of an exported WORKER


def export(folder: str | Path, library: Library, registry: AgentRegistry) -> None:
    """Write a site with the levels and replays of a library, and those agents of a registry that a page plays.

    folder: created if it is missing; the files of an earlier export are replaced, and other files are kept.
    Raises ConfigError for a folder that has files and no earlier export.
    """
    root = Path(folder)
    check_output_folder(root, "--export")
    earlier = _exported(root)
    if earlier is None and root.exists() and any(root.iterdir()):
        raise ConfigError("this folder has other files; give a new or empty folder", "--export", folder)
    files = {f"studio/static/{path.relative_to(STATIC).as_posix()}": path.read_bytes() for path in _files(STATIC)}
    files["studio/static/colours.css"] = stylesheet().encode()
    worker = files.pop(f"studio/static/{WORKER}")
    del files[f"studio/static/{INDEX}"]
    files |= {f"wasm/{path.name}": path.read_bytes() for path in WASM.glob("*.js")}
    files[INDEX] = index_page(_COMPRESSED).replace("<html ", "<html data-site ", 1).encode()
    interface = json.loads((WASM / "interface.json").read_text(encoding="utf-8"))
    files["wasm/interface.json"] = _json(interface | {"suffix": _COMPRESSED})
    for path in WASM.glob("*.wasm"):
        files[f"wasm/{path.name}{_COMPRESSED}"] = gzip.compress(path.read_bytes(), mtime=0)
    files |= {f"data/{path.replace('/', '-')}.json": _json(answer) for path, answer in _answers(library).items()}
    agents = registry.agents()
    cards = [card for card in agents["agents"] if card["in_page"]]
    files["data/agents.json"] = _json({"agents": cards, "why_none": None if cards else "this page has no agents"})
    for card in cards:
        policy = registry.policy(card["id"])
        files[f"data/agents-{card['id']}-policy{_COMPRESSED}"] = gzip.compress(policy, mtime=0)
    digest = hashlib.sha256(b"".join(name.encode() + files[name] for name in sorted(files))).hexdigest()[:16]
    names = json.dumps(["./", *sorted(files)])
    files[WORKER] = f'const [VERSION, FILES] = ["{digest}", {names}];\n'.encode() + worker
    for name, data in files.items():
        write_bytes(root / name, data)
    for name in (earlier or set()) - files.keys():
        (root / name).unlink(missing_ok=True)


def _exported(root: Path) -> set[str] | None:
    """Return the names of the files of an earlier export to a folder; None if the folder has no export."""
    try:
        with open(root / WORKER, encoding="utf-8") as file:
            match = _FILES_LINE.fullmatch(file.readline().rstrip("\n"))
    except (OSError, UnicodeDecodeError):
        return None
    if match is None:
        return None
    return {
        name for name in json.loads(match[1]) if name.startswith(("studio/", "wasm/", "data/")) and ".." not in name
    }


def _answers(library: Library) -> dict[str, Any]:
    """Return the answers of the server by path below /api/."""
    levels, replays = library.levels(), library.replays()
    for problem in levels["problems"] + replays["problems"]:
        warnings.warn(InputWarning(f"not in the site: {problem}"), stacklevel=3)
    levels["problems"], replays["problems"] = [], []  # messages contain paths of this machine
    answers = {"state": _STATE, "levels": levels, "replays": replays, "film": {"run": library.film()}}
    for card in levels["levels"]:
        answers[f"levels/{card['id']}"] = library.document(card["id"])
    for card in replays["replays"]:
        replay, label = library.replay(card["number"])
        answers[f"replays/{card['number']}/run"] = library.run(replay.level, replay.inputs, label)
        answers.setdefault(f"levels/{card['level']}", library.document(card["level"]))
    return answers


def _files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.is_file()]


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
