"""Modules of the page: their imports, and the page that loads them."""

import posixpath
import re
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
STATIC, WASM = PACKAGE / "studio" / "static", PACKAGE / "wasm"
FIRST_VIEWS = ("studio/static/js/app.js", "studio/static/js/gallery.js", "studio/static/js/play.js")
_IMPORTED = re.compile(r'^(?:import|export|\}).* from "(\.[^"]+\.js)";$', re.MULTILINE)


def with_imports(*names: str) -> list[str]:
    """Return modules and those that they import, directly or not, each after its own imports.

    names: paths relative to the package, which are those in the addresses of the studio.
    """
    imported: dict[str, None] = {}

    def add(name: str) -> None:
        for other in _IMPORTED.findall((PACKAGE / name).read_text(encoding="utf-8")):
            path = posixpath.normpath(posixpath.join(posixpath.dirname(name), other))
            if path not in imported:
                add(path)
        imported[name] = None

    for name in names:
        add(name)
    return list(imported)


def index_page(suffix: str = "") -> str:
    """Return the page.  It lists the files of its first views, so that a browser loads them all in parallel.

    suffix: of the names of compressed kernels.
    """
    page = (STATIC / "index.html").read_text(encoding="utf-8")
    links = [f'<link rel="modulepreload" href="{name}">' for name in with_imports(*FIRST_VIEWS)]
    for name in ("wasm/interface.json", f"wasm/game.wasm{suffix}"):
        links.append(f'<link rel="preload" as="fetch" crossorigin href="{name}">')
    return page.replace("</head>", "\n".join([*links, "</head>"]), 1)
