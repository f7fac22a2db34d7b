"""Rewrites a module so that Python 3.9 can compile and import it; the meaning stays.

`A | B` between types is new in Python 3.10: it becomes `Union[A, B]`, and a tuple inside
`isinstance`. Names that the standard library lacks there are imported from `there.older_python`,
which has the originals where they exist. The standard library itself is not changed.
"""

import ast
from collections.abc import Iterator
from typing import TypeVar

OLDEST = (3, 9)
"""The oldest Python that the code runs on. Source: Debian 11's, still on boards."""
_UNION = "_Union"
_TYPES = frozenset({"bool", "bytes", "dict", "float", "frozenset", "int", "list", "object", "set",
                    "str", "tuple", "type"})  # fmt: skip
_CHECKS = frozenset({"isinstance", "issubclass"})
_HOME = "fleetrank.device_agents.board.there.older_python"
_NEW_NAMES = {
    "dataclasses": {"dataclass"}, "datetime": {"UTC"}, "enum": {"StrEnum"},
    "itertools": {"pairwise"}, "types": {"NoneType", "UnionType"}, "typing": {"Self"},
}  # fmt: skip
"""By module; imported with `from`, as the packages do."""
_NEW_CALLS = {("re", "compile"): "compile_pattern", ("hashlib", "file_digest"): "file_digest"}
"""Called as an attribute of their module."""
_STRICT_ZIP = "strict_zip"

Node = TypeVar("Node", bound=ast.AST)


def older_form(source: str, name: str) -> str:
    """The module's text in the older form, without comments and docstrings: it travels.

    Args:
        source: of a module for the Python of this host.
        name: of the module, for errors.

    Raises:
        SyntaxError: it uses another form that Python 3.9 does not know.
    """
    tree = _Rewriter().visit(ast.parse(source, name))
    _without_docstrings(tree)
    helpers = (*_NEW_CALLS.values(), _STRICT_ZIP)
    tree.body[:0] = [
        _import("typing", ("Union", _UNION)),
        *(_import(_HOME, (one, f"_{one}")) for one in helpers if f"_{one}" in _names(tree)),
    ]
    text = ast.unparse(ast.fix_missing_locations(tree))
    ast.parse(text, name, feature_version=OLDEST)
    return f"{text}\n"


def _import(module: str, *names: tuple[str, str | None]) -> ast.ImportFrom:
    aliases = [ast.alias(name, other) for name, other in names]
    return ast.ImportFrom(module=module, names=aliases, level=0)


def _names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _without_docstrings(tree: ast.AST) -> None:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            continue
        if ast.get_docstring(node) is not None:
            node.body[:1] = [] if len(node.body) > 1 else [ast.Pass()]


class _Rewriter(ast.NodeTransformer):
    """Its methods are named by `ast`."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = _as_annotation(node.annotation)
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        if node.annotation is not None:
            node.annotation = _as_annotation(node.annotation)
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if node.returns is not None:
            node.returns = _as_annotation(node.returns)
        return self.generic_visit(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> list[ast.ImportFrom]:
        new = _NEW_NAMES.get(node.module or "", set())
        moved = [one for one in node.names if one.name in new]
        node.names = [one for one in node.names if one.name not in new]
        imports = [node] if node.names else []
        if moved:
            imports.append(_import(_HOME, *((one.name, one.asname) for one in moved)))
        return imports

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if (replaced := _replacement(node)) is not None:
            node.func = ast.Name(id=f"_{replaced}", ctx=ast.Load())
        is_check = isinstance(node.func, ast.Name) and node.func.id in _CHECKS
        if is_check and len(node.args) == 2 and _is_alternative(node.args[1]):
            node.args[1] = ast.Tuple(elts=list(_parts(node.args[1])), ctx=ast.Load())
        return self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        if _is_alternative(node) and any(_is_type(part) for part in _parts(node)):
            return self.generic_visit(_union_of(node))
        return self.generic_visit(node)


def _replacement(node: ast.Call) -> str | None:
    """The name of ours that a call needs on an older Python."""
    called = node.func
    if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
        return _NEW_CALLS.get((called.value.id, called.attr))
    is_strict = any(one.arg == "strict" for one in node.keywords)
    is_zip = isinstance(called, ast.Name) and called.id == "zip"
    return _STRICT_ZIP if is_zip and is_strict else None


class _InAnnotation(ast.NodeTransformer):
    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        return self.generic_visit(_union_of(node) if _is_alternative(node) else node)


def _as_annotation(node: ast.expr) -> ast.expr:
    found = _InAnnotation().visit(node)
    assert isinstance(found, ast.expr)  # noqa: S101 - for the type checker
    return found


def _is_alternative(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr)


def _parts(node: ast.expr) -> Iterator[ast.expr]:
    """The operands of `A | B | C`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        yield from _parts(node.left)
        yield from _parts(node.right)
    else:
        yield node


def _is_type(node: ast.expr) -> bool:
    """Whether an operand can only be a type: None, a built-in type, or one with parameters."""
    if isinstance(node, ast.Constant):
        return node.value is None
    if isinstance(node, ast.Subscript):
        return _is_type(node.value)
    return isinstance(node, ast.Name) and node.id in _TYPES


def _union_of(node: ast.expr) -> ast.Subscript:
    members = ast.Tuple(elts=list(_parts(node)), ctx=ast.Load())
    return ast.Subscript(value=ast.Name(id=_UNION, ctx=ast.Load()), slice=members, ctx=ast.Load())
