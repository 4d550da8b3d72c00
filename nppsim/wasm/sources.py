"""Digest of the kernels' sources, equal for all versions of Python."""

import ast
import hashlib
from typing import Any

from nppsim._numba.cache import kernel_sources


def source_digest() -> str:
    """SHA-256 (hex) of the sources on which kernels depend; comments, docstrings and layout do not change it."""
    digest = hashlib.sha256()
    for path, text in kernel_sources().items():
        digest.update(f"{path.name} {_plain(ast.parse(text))}".encode())
    return digest.hexdigest()


def _plain(node: Any) -> Any:
    """Return a syntax tree as nested lists without docstrings, and without empty fields, which newer versions add."""
    if isinstance(node, list):
        return [_plain(item) for item in node if not _is_docstring(item)]
    if not isinstance(node, ast.AST):
        return node
    fields = [(name, _plain(value)) for name, value in ast.iter_fields(node) if value not in (None, [])]
    return [type(node).__name__, *fields]


def _is_docstring(node: Any) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
