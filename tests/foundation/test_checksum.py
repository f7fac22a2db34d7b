import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetrank.foundation.checksums import ChecksumError, with_checksum, without_checksum

_OBJECTS = st.dictionaries(
    st.text(max_size=5), st.none() | st.integers() | st.text(max_size=5), max_size=4
)


@given(content=_OBJECTS)
def test_an_object_comes_back_as_it_was(content) -> None:
    stored = json.loads(json.dumps(with_checksum(content), indent=2))
    assert without_checksum(stored) == {k: v for k, v in content.items() if k != "checksum"}


def test_the_checksum_is_of_the_content_and_not_of_its_layout() -> None:
    first = with_checksum({"a": 1, "b": [2.5, None]})
    assert first["checksum"] == with_checksum({"b": [2.5, None], "a": 1})["checksum"]
    assert with_checksum(first) == first


@pytest.mark.parametrize(
    "change", [{"a": 2}, {"c": None}, {"checksum": "sha256:0"}, {"checksum": None}]
)
def test_a_changed_object_is_refused(change) -> None:
    with pytest.raises(ChecksumError):
        without_checksum(with_checksum({"a": 1}) | change)


def test_a_checksum_under_a_damaged_name_is_no_object_without_one() -> None:
    content = with_checksum({"a": 1})
    content["chfcksum"] = content.pop("checksum")
    with pytest.raises(ChecksumError):
        without_checksum(content)


def test_what_an_older_version_wrote_has_no_checksum() -> None:
    assert without_checksum({"a": 1}) == {"a": 1}
