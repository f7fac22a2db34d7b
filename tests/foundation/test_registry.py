"""Members of a family are imported on request, and an unknown name is answered with the nearest."""

import sys

import pytest

from fleetrank.foundation.registry import Registry, UnknownNameError

CODECS: Registry[type] = Registry(
    "codec", {"json": "json:JSONDecoder", "colours": "colorsys:rgb_to_hls", "lost": "no_such:X"}
)


def test_a_member_is_imported_when_it_is_asked_for() -> None:
    sys.modules.pop("colorsys", None)
    assert "colours" in CODECS
    assert "colorsys" not in sys.modules
    assert CODECS.load("json").__name__ == "JSONDecoder"
    CODECS.load("colours")
    assert "colorsys" in sys.modules


def test_an_unknown_name_is_answered_with_the_nearest_and_all() -> None:
    with pytest.raises(UnknownNameError, match="no codec 'jsn'") as caught:
        CODECS.load("jsn")
    assert "'json'" in caught.value.remedy
    assert "colours" in caught.value.remedy


def test_a_missing_module_is_an_import_error() -> None:
    with pytest.raises(ImportError):
        CODECS.load("lost")
