"""The older form of a module means the same."""

import ast
import re
import textwrap

import pytest

from fleetrank.device_agents.board.code.code_bundle import measuring_modules
from fleetrank.device_agents.board.code.older_form import older_form
from fleetrank.device_agents.board.there import older_python


def names_of(text: str) -> dict[str, object]:
    found: dict[str, object] = {}
    exec(older_form(textwrap.dedent(text), "example"), found)
    return found


def test_alternatives_of_types_are_unions() -> None:
    found = names_of("""
        Json = None | bool | list[str]
        def f(a: int | None = None) -> "str | None":
            b: dict[str, int | None] = {}
            return str(isinstance(a, int | str)) + str(b)
        flags = 1 | 2
        mask = flags | 4
    """)
    function = found["f"]
    assert callable(function)
    assert function(3) == "True{}"
    assert function() == "False{}"
    assert found["mask"] == 7
    assert "|" not in older_form("x: int | None = None", "example")


def test_new_names_come_from_one_module() -> None:
    text = older_form(
        "import re\nfrom dataclasses import dataclass, field\nfrom enum import StrEnum\n"
        "P = re.compile('a++')\nz = zip([1], [2], strict=True)\n",
        "example",
    )
    assert "from dataclasses import field" in text
    assert "import dataclass" in text
    assert "_compile_pattern('a++')" in text
    assert "_strict_zip([1], [2], strict=True)" in text


def test_a_form_that_3_9_lacks_is_refused() -> None:
    with pytest.raises(SyntaxError):
        older_form("match 1:\n    case 1:\n        pass\n", "example")


def _patterns() -> list[str]:
    """Every pattern that the sent modules write out."""
    found = []
    for path in measuring_modules().values():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            is_call = isinstance(node, ast.Call) and ast.unparse(node.func) == "re.compile"
            if is_call and isinstance(node.args[0], ast.Constant):
                found.append(node.args[0].value)
    return [one for one in found if isinstance(one, str)]


@pytest.mark.parametrize("pattern", [one for one in _patterns() if re.search(r"[*+?}]\+", one)])
def test_a_pattern_without_possessive_quantifiers_is_one(pattern: str) -> None:
    older = older_python.without_possessive(pattern)
    assert re.compile(older).groups == re.compile(pattern).groups
    assert not re.search(r"(?<!\\)[*+?}]\+", older)


def test_possessive_patterns_match_the_same_text() -> None:
    pattern = r"^VmRSS:[ \t]*+(\d{1,18}+) kB$"
    for text in ("VmRSS:\t 12 kB", "VmRSS: kB", "VmRSS:12kB"):
        new, old = re.match(pattern, text), re.match(older_python.without_possessive(pattern), text)
        assert (new and new.groups()) == (old and old.groups())


def test_the_older_dataclass_takes_fields_in_any_order() -> None:
    @older_python.older_dataclass(frozen=True, slots=True, kw_only=True)
    class Example:
        first: int = 1
        second: str

    found = Example(second="b")  # type: ignore[call-arg]
    assert (found.first, found.second) == (1, "b")
    with pytest.raises(AttributeError):
        found.first = 2


def test_the_older_enum_is_its_value() -> None:
    class Example(older_python.OlderStrEnum):
        ONE = "one"

    assert f"{Example.ONE} {Example.ONE!s}" == "one one"
    assert Example("one") is Example.ONE


def test_the_strict_zip_refuses_different_lengths() -> None:
    assert list(older_python.strict_zip([1, 2], [3, 4], strict=True)) == [(1, 3), (2, 4)]
    with pytest.raises(ValueError, match="different lengths"):
        older_python.strict_zip([1], [2, 3], strict=True)


def test_pairs_are_those_of_the_original() -> None:
    from itertools import pairwise

    for values in ([], [1], [1, 2, 3]):
        assert list(older_python.older_pairwise(values)) == list(pairwise(values))
