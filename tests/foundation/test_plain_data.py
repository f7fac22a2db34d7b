import json

import pytest
import yaml

from fleetrank.foundation.errors import BadFileError
from fleetrank.foundation.plain_data import (
    MAX_DIGITS,
    TYPED,
    DataLimits,
    check_events,
    check_limits,
    parse_toml,
    read_json_object,
)

FEW = DataLimits(max_bytes=1000, values=10, depth=3)


@pytest.mark.parametrize("content", [list(range(9)), dict.fromkeys(range(4), 1), [[[1]]], 10**399])
def test_what_is_within_the_limits_passes(content) -> None:
    check_limits(content, "x", FEW)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (list(range(10)), "more than 10 values"),
        (dict.fromkeys(range(5), 1), "more than 10 values"),
        ([[[[1]]]], "more than 3 deep"),
        ({"a": [{"b": -(10**5000)}]}, "key 'a.b'"),
        ({10**5000: 1}, "digits"),
    ],
)
def test_what_is_over_a_limit_is_refused_with_its_place(content, said) -> None:
    with pytest.raises(BadFileError) as caught:
        check_limits(content, "x.json", FEW)
    assert caught.value.message.startswith("x.json")
    assert said in caught.value.message


@pytest.mark.slow
def test_depth_needs_no_recursion() -> None:
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(BadFileError, match="deep"):
        check_limits(nested, "x", TYPED)


@pytest.mark.parametrize(
    "text",
    [
        '"a.b.c" = 1',
        "a = 'x.y.z'",
        f"a = '{'x.' * 500}'",
        'a = """\nx. y. z.\n"""',
        "a = [1.0, 2.0]",
    ],
)
def test_dots_outside_of_keys_are_no_depth(text) -> None:
    parse_toml(text, "x")


@pytest.mark.parametrize(
    "text",
    [
        ".".join(["a"] * 1000) + " = 1",
        " . ".join(['"="'] * 1000) + " = 1",
        ".".join(["'['"] * 1000) + " = 1",
        ".".join([r'"\"."'] * 1000) + " = 1",
        "[" + ".".join(["a"] * 1000) + "]",
        "a = {" + ".".join(["a"] * 1000) + " = 1}",
        # Not even TOML: it is refused before the parser takes the square of its length.
        ".".join(["a"] * 1000) + " =",
        "a = " + "[" * 100 + "]" * 100,
        "a = " + "[" * 10_000,
    ],
)
def test_toml_is_not_nested_deeper_than_its_limit(text) -> None:
    with pytest.raises(BadFileError, match="nested"):
        parse_toml(text, "x")


@pytest.mark.parametrize("text", ["", "[]", "1", "{", "[" * 100_000, '{"a": ' + "1" * 5000 + "}"])
def test_a_record_that_is_no_json_object_is_refused(tmp_path, text) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(BadFileError, match=r"a\.json"):
        read_json_object(path)
    path.write_text(json.dumps({"a": [1, None]}))
    assert read_json_object(path) == {"a": [1, None]}


def _check(text: str, limits: DataLimits = FEW) -> None:
    check_events(yaml.parse(text, Loader=yaml.SafeLoader), "x.yaml", limits)


@pytest.mark.parametrize(
    "text",
    ["[1, 2, 3, 4, 5, 6, 7, 8, 9]", "[&a [1, 2], 3]", "[[[1]]]", "{a: {b: 1}}"],
)
def test_yaml_within_the_limits_passes(text) -> None:
    _check(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]", "more than 10 values"),
        ("[[[[1]]]]", "more than 3 deep"),
        ("[&a [b], *a]", "alias *a"),
        ("{a: &a {b: 1}, <<: *a}", "alias *a"),
        (f"a: [b, {{c: {'1' * (MAX_DIGITS + 1)}}}]", "key 'a.c'"),
        (f"a: !!int '1{':1' * MAX_DIGITS}'", "key 'a'"),
    ],
)
def test_yaml_over_a_limit_is_refused_before_it_is_built(text, said) -> None:
    with pytest.raises(BadFileError) as caught:
        _check(text)
    assert said in caught.value.message
