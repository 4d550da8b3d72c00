"""Modules of the page and their imports."""

import re

from nppsim.studio.modules import FIRST_VIEWS, PACKAGE, index_page, with_imports


def test_with_imports_lists_modules_after_their_imports():
    found = with_imports("studio/static/js/engine.js")
    assert found[-1] == "studio/static/js/engine.js"
    assert found.index("wasm/kernels.js") < found.index("wasm/game.js") < found.index("studio/static/js/documents.js")
    assert len(found) == len(set(found))


def test_index_page_lists_existing_files_of_the_first_views():
    names = re.findall(r'<link rel="(?:module)?preload".* href="([^"]+)">', index_page())
    assert set(FIRST_VIEWS) | {"wasm/game.wasm", "wasm/kernels.js"} <= set(names)
    assert all((PACKAGE / name).is_file() for name in names)
