"""Finds assertions that hold a whole sentence of a message: they break when a word changes.

A test asserts the kind of an error, the figures and the named thing; `wording.has` finds them in a
text.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

MIN_WORDS = 5
_WORD = re.compile(r"(?<!\S)[\"'(]?[A-Za-z][A-Za-z'-]*[.,;:?)'\"]*(?!\S)")
"""A word of prose stands alone: paths, options, keys and figures are not counted."""
_TESTED = {"startswith", "endswith", "count", "index"}
"""Methods of a text whose argument is compared with it."""


def sentences(source: str) -> list[tuple[int, str]]:
    """Line numbers and texts of compared literals with at least `MIN_WORDS` words."""
    found = {(node.lineno, text) for node in _compared(ast.parse(source)) for text in _texts(node)}
    return sorted(one for one in found if len(_WORD.findall(one[1])) >= MIN_WORDS)


def sentences_of(folder: Path) -> dict[Path, int]:
    """How many each test file of a folder has; files without one are left out."""
    counts = {path: len(sentences(path.read_text())) for path in sorted(folder.rglob("test_*.py"))}
    return {path: count for path, count in counts.items() if count}


def _compared(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            for part in ast.walk(node.test):
                if isinstance(part, ast.Compare):
                    yield from (part.left, *part.comparators)
                elif isinstance(part, ast.Call) and _is_tested(part):
                    yield from part.args
        elif isinstance(node, ast.keyword) and node.arg == "match":
            yield node.value


def _is_tested(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in _TESTED


def _texts(node: ast.expr) -> Iterator[str]:
    """Literals of the expression itself, in a list or put together, not in what it calls."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield " ".join(text for part in node.values for text in _texts(part))
    elif isinstance(node, ast.List | ast.Tuple | ast.Set):
        yield from (text for part in node.elts for text in _texts(part))
    elif isinstance(node, ast.BinOp):
        yield " ".join([*_texts(node.left), *_texts(node.right)])
