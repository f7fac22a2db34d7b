"""The size of the house: each figure counts what it says, and a budget fails only above."""

import tomllib
from pathlib import Path

from house_size import BUDGET, figures, report

ONE = '''"""A docstring
of two lines."""

import os
from fleetrank.foundation.two import Two

# a comment
class One:
    a: int
    b: int
    c: int
    d: int
    e: int


def one(x):
    """A docstring."""
    return _short(Two(a=x.a, b=x.b, c=x.c, d=x.d, e=x.e))


def _short(x):
    return os.fspath(x)
'''
TWO = "class Two:\n" + "".join(f"    {name}: int\n" for name in "abcdef")


def test_each_figure_counts_what_it_says(tmp_path: Path) -> None:
    for name in ("foundation", "tests", "docs/decisions"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "foundation/one.py").write_text(ONE)
    (tmp_path / "foundation/two.py").write_text(TWO)
    (tmp_path / "foundation/__init__.py").write_text('"""Open `one`."""\n')
    (tmp_path / "tests/test_one.py").write_text("# a comment\nassert 1\n\n")
    (tmp_path / "docs/decisions/a.md").write_text("four words are here\n")
    (tmp_path / "docs/decisions/index.md").write_text("one\n")
    (tmp_path / "README.md").write_text("two words\n")
    found = figures(tmp_path)
    known = tomllib.loads(BUDGET.read_text(encoding="utf-8"))
    assert sorted([*known["budget"], *known["limit"]]) == sorted(found)
    assert found == {
        "code and import lines": 19,
        "import share, %": 10.5,
        "comment headings that split a module": 0,
        "folders with code": 1,
        "short private functions called once": 1,
        "class pairs with 5 equal fields": 1,
        "calls that copy 5 fields": 1,
        "longest module, code lines": 10,
        "lines of test code": 1,
        "decision files": 1,
        "words of documents": 7,
    }


def test_above_the_budget_fails_and_well_below_is_a_hint() -> None:
    for value, is_said, is_within in (
        (1001, True, False),
        (1000, False, True),
        (995, False, True),
        (900, True, True),
    ):
        lines, within = report({"folders with code": value}, {"folders with code": 1000}, {})
        assert (bool(lines), within) == (is_said, is_within)
        assert all("folders with code" in line and BUDGET.name in line for line in lines)
    assert report({"folders with code": 1}, {}, {"folders with code": 1000}) == ([], True)
