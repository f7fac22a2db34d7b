"""Choices in messages: one form for Python and forms, options for a terminal."""

import pytest

from fleetrank.foundation.wording import with_flags


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("choose with `source=` or `target=`", "choose with --source or --target"),
        ("such as `set k=3`", "such as --k 3"),
        ("such as `set weight_memory=0`", "such as --weight-memory 0"),
        ("see `latency` with `part=memory`", "see `latency` with --part memory"),
        ("`source_tier=cpu` and `force=true`", "--source-tier cpu and --force"),
        ("`fleetrank query` with `tables=true`", "`fleetrank query --tables`"),
        (
            "`fleetrank devices add` with `adb=a b` and `tool=x=PATH`, or `name=`",
            "`fleetrank devices add --adb 'a b' --tool x=PATH`, or --name",
        ),
        ("give `reason=why it misleads`", "give --reason 'why it misleads'"),
        ("run `fleetrank sweep run`", "run `fleetrank sweep run`"),
        ("`SELECT a=1`, `ulimit -f`, a=b, ``", "`SELECT a=1`, `ulimit -f`, a=b, ``"),
    ],
)
def test_a_choice_becomes_an_option(text: str, shown: str) -> None:
    assert with_flags(text) == shown
    assert with_flags(shown) == shown
