"""MkDocs hooks: pages for files outside docs/, and links between them.

Links in Markdown lead to files of the repository, so that they work on GitHub.  These hooks turn them into links to the
pages of the site: README.md is its first page, examples and other linked sources get a page.
"""

import ast
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from nppsim.studio.agent_registry import AgentRegistry
from nppsim.studio.export import export
from nppsim.studio.library import Library

ROOT = Path(__file__).parent
OUTSIDE = {  # pages of the site that are files outside docs/
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "datasets/README.md": "datasets.md",
}
LANGUAGES = {".py": "python", ".toml": "toml", ".yml": "yaml", ".json": "json", ".js": "javascript", "": "text"}
GAME = "play"  # folder of the site with the exported studio
_GAME = f"""<iframe src="{GAME}/index.html" title="The game" class="game" allow="clipboard-write; gamepad"></iframe>

<p><a href="{GAME}/index.html">Play on the whole page</a>: in the browser, without installation.</p>
"""
_CODE = re.compile(r"^( *)```.*?^\1```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


def place_of(uri: str) -> str:
    """Return the file of the repository that a page shows."""
    outside = {page: file for file, page in OUTSIDE.items()}
    return outside.get(uri, f"docs/{uri}")


def page_of(file: str) -> str:
    """The page of the site that shows a file of the repository; of an image or a page in docs/, its place there."""
    if file in OUTSIDE:
        return OUTSIDE[file]
    if file.startswith("docs/"):
        return file.removeprefix("docs/")
    if file.startswith("examples/"):
        return str(Path(file).with_suffix(".md"))
    return f"source/{file}.md"


def links(markdown: str) -> Iterator[re.Match]:
    """The relative links of a page, those in code left out."""
    code = [match.span() for match in _CODE.finditer(markdown)]
    for match in _LINK.finditer(markdown):
        if re.match(r"\w+:|#", match[1]) or any(start <= match.start() < stop for start, stop in code):
            continue
        yield match


def target_of(link: str, page: str) -> str:
    """The file of the repository that a link leads to, from the page of this file.  PluginError where there is none."""
    file = posixpath.normpath(posixpath.join(posixpath.dirname(page), link.partition("#")[0]))
    if not (ROOT / file).is_file():
        raise PluginError(f"{page}: the link {link} leads to no file")
    return file


def with_links_of_the_site(markdown: str, uri: str) -> str:
    """The page with its links turned to pages of the site."""
    parts, done = [], 0
    for match in links(markdown):
        target = posixpath.relpath(page_of(target_of(match[1], place_of(uri))), posixpath.dirname(uri) or ".")
        anchor = match[1].partition("#")[2]
        parts += [markdown[done : match.start(1)], target, f"#{anchor}" if anchor else ""]
        done = match.end(1)
    return "".join([*parts, markdown[done:]])


def source_page(file: str) -> str:
    """The page of a source: its text, taken from the file itself when the site is built."""
    language = LANGUAGES.get(Path(file).suffix, "text")
    title, text = _example_page(file) if file.startswith("examples/") else (f"`{file}`", "")
    return f'# {title}\n\n{text}\n\n```{language} title="{file}"\n--8<-- "{file}"\n```\n'


def _example_page(example: str) -> tuple[str, str]:
    """(title, text) of an example, from its docstring: what it is: how it is called; then more."""
    docstring = ast.get_docstring(ast.parse((ROOT / example).read_text(encoding="utf-8"))) or ""
    first, _, more = docstring.partition("\n")
    title, _, command = first.partition(": ")
    return title, f"{more.strip()}\n\n```bash\n{command}\n```"


def sources() -> list[str]:
    """Files of the repository that get a page: the examples, and whatever is linked."""
    found = {path.relative_to(ROOT).as_posix() for path in (ROOT / "examples").glob("*.py")}
    for path in (*((ROOT / file) for file in OUTSIDE), *(ROOT / "docs").rglob("*.md")):
        page = path.relative_to(ROOT).as_posix()
        for match in links(path.read_text(encoding="utf-8")):
            file = target_of(match[1], page)
            if file not in OUTSIDE and not file.startswith("docs/"):
                found.add(file)
    return sorted(found)


def on_post_build(config: MkDocsConfig) -> None:
    """Add the studio with the shipped levels and agent."""
    export(Path(config.site_dir) / GAME, Library(), AgentRegistry())


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/."""
    for file, page in OUTSIDE.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / file)))
    for file in sources():
        page = File.generated(config, page_of(file), content=source_page(file))
        if not file.startswith("examples/"):
            page.inclusion = page.inclusion.NOT_IN_NAV
        files.append(page)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turn the links."""
    uri = page.file.src_uri
    if uri.startswith(("source/", "examples/")):
        return markdown
    markdown = with_links_of_the_site(markdown, uri)
    if uri != OUTSIDE["README.md"]:
        return markdown
    title, _, rest = markdown.partition("\n")
    return f"{title}\n\n{_GAME}\n{rest}"
