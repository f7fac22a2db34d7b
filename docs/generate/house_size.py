"""How big the house is, and where it repeats itself: `make check` holds the figures to a budget.

A figure above its budget or limit fails. Shorten what you added, or raise the budget in the same
commit and say there what the lines buy. A figure well below its budget is a hint: lower the budget.
Code lines are lines without imports, docstrings, comments and blank lines.
"""

import ast
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUDGET = Path(__file__).with_name("house_size.toml")
PACKAGES = ("foundation", "models", "device_agents", "analysis", "orchestrator")
MANY_FIELDS = 5
SHORT_BODY_LINES = 3
SLACK_SHARE = 0.01
"""A figure this little below its budget needs no hint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One file of Python."""

    text: str
    tree: ast.Module
    code: int
    imports: int


def measured(path: Path) -> Measured:
    """Counts the lines of a file."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    prose: set[int] = set()
    imports: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            if isinstance(node.value.value, str):
                prose.update(_lines(node))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            imports.update(_lines(node))
    kept = {
        number
        for number, line in enumerate(text.split("\n"), 1)
        if line.strip() and not line.strip().startswith("#")
    }
    return Measured(
        text=text, tree=tree, code=len(kept - prose - imports), imports=len(imports - prose)
    )


def _lines(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


def figures(root: Path) -> dict[str, float]:
    """Every figure that has a budget, of the tree under `root`."""
    found = {
        path.relative_to(root): measured(path)
        for name in PACKAGES
        for path in sorted((root / name).rglob("*.py"))
    }
    modules = [path for path in found if path.name != "__init__.py"]
    code = sum(one.code for one in found.values())
    imports = sum(one.imports for one in found.values())
    tests = [measured(path).code for path in (root / "tests").rglob("*.py")]
    decisions = [path for path in (root / "docs/decisions").glob("*.md") if path.stem != "index"]
    pages = (*root.glob("*.md"), *(root / "docs").rglob("*.md"))
    return {
        "code and import lines": code + imports,
        "import share, %": round(100 * imports / (code + imports), 1),
        "comment headings that split a module": sum(_headings(one.text) for one in found.values()),
        "modules with two unrelated groups of 40 lines": sum(
            _unrelated_groups(one.tree) >= 2 for one in found.values()
        ),
        "class names in two modules": _names_twice(found.values()),
        "folders with code": len({path.parent for path in modules}),
        "short private functions called once": sum(_called_once(one) for one in found.values()),
        "class pairs with 5 equal fields": _twins(found.values()),
        "calls that copy 5 fields": sum(_copies(one.tree) for one in found.values()),
        "longest module, code lines": max(one.code for one in found.values()),
        "lines of test code": sum(tests),
        "decision files": len(decisions),
        "words of documents": sum(len(path.read_text(encoding="utf-8").split()) for path in pages),
    }


def _headings(text: str) -> int:
    """Comments at the margin between blank lines: each begins a second module in one file."""
    lines = ["", *text.split("\n"), ""]
    starts = (
        n
        for n, line in enumerate(lines)
        if line.startswith("# ") and n > 1 and not lines[n - 1].strip()
    )
    ends = (next(n for n in range(at, len(lines)) if not lines[n].startswith("#")) for at in starts)
    return sum(not lines[end].strip() for end in ends)


def _unrelated_groups(tree: ast.Module) -> int:
    """Sets of definitions with 40 lines or more that name nothing of each other: two topics."""
    nodes = {
        name: node for node in tree.body for name in _defined(node) if not name.startswith("_log")
    }
    groups: list[set[str]] = []
    for name, node in nodes.items():
        named = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)} & nodes.keys()
        own = {name} | named
        near = [group for group in groups if group & own]
        groups = [group for group in groups if not group & own] + [own.union(*near)]
    return sum(sum(len(_lines(nodes[name])) for name in group) >= 40 for group in groups)


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        return [one.id for one in node.targets if isinstance(one, ast.Name)]
    is_name = isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    return [node.target.id] if is_name else []


def _names_twice(found: Iterable[Measured]) -> int:
    """Public classes whose name another module gives to another class."""
    owners = Counter(
        node.name
        for one in found
        for node in one.tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    return sum(count > 1 for count in owners.values())


def _called_once(one: Measured) -> int:
    """Private functions with a body of three lines that the module names in one other place."""
    count = 0
    for node in one.tree.body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("_"):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            n_lines = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
            is_named_twice = len(re.findall(rf"\b{node.name}\b", one.text)) == 2
            count += 0 < n_lines <= SHORT_BODY_LINES and is_named_twice
    return count


def _twins(found: Iterable[Measured]) -> int:
    fields = [
        names
        for one in found
        for node in ast.walk(one.tree)
        if isinstance(node, ast.ClassDef) and len(names := _fields(node)) >= MANY_FIELDS
    ]
    return sum(len(a & b) >= MANY_FIELDS for a, b in combinations(fields, 2))


def _fields(node: ast.ClassDef) -> set[str]:
    return {
        part.target.id
        for part in node.body
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
    }


def _copies(tree: ast.Module) -> int:
    """Calls and dicts with five or more `name=other.name`."""
    count = 0
    for node in ast.walk(tree):
        pairs: list[tuple[object, ast.expr]] = []
        if isinstance(node, ast.Call):
            pairs = [(keyword.arg, keyword.value) for keyword in node.keywords]
        elif isinstance(node, ast.Dict):
            pairs = [
                (key.value, value)
                for key, value in zip(node.keys, node.values, strict=True)
                if isinstance(key, ast.Constant)
            ]
        same = sum(isinstance(value, ast.Attribute) and value.attr == name for name, value in pairs)
        count += same >= MANY_FIELDS
    return count


def report(
    now: Mapping[str, float], budget: Mapping[str, float], limit: Mapping[str, float]
) -> tuple[list[str], bool]:
    """The lines to print, and whether every figure is within its budget or limit."""
    lines, is_within = [], True
    for name, value in now.items():
        most = budget[name] if name in budget else limit[name]
        if value > most:
            is_within = False
            lines.append(
                f"{name}: {value:,}, budget {most:,}: shorten it, or raise the budget in "
                f"{BUDGET.name} and say in the commit what it buys"
            )
        elif name in budget and most - value > max(1, most * SLACK_SHARE):
            lines.append(f"{name}: {value:,}, budget {most:,}: lower the budget in {BUDGET.name}")
    return lines, is_within


def main() -> int:
    """Prints figures that left their budget, or all with `--all`; returns 1 if one is above.

    Raises:
        KeyError: a figure has neither a budget nor a limit.
    """
    now = figures(ROOT)
    if "--all" in sys.argv:
        sys.stdout.writelines(f'"{name}" = {value}\n' for name, value in now.items())
        return 0
    lines, is_within = report(now, **tomllib.loads(BUDGET.read_text(encoding="utf-8")))
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return 0 if is_within else 1


if __name__ == "__main__":
    sys.exit(main())
