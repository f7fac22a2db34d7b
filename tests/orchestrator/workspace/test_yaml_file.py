from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict

from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.workspace.yaml_file import parse_file, read_yaml


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")
    timeout_s: float = 1.0


class Outer(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    limits: Inner = Inner()
    by_name: dict[str, Inner] = {}


def _file(folder: Path, text: str) -> Path:
    path = folder / "x.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "message", "remedy"),
    [
        ("nam: x", "unknown key 'nam'", "did you mean 'name'?"),
        ("name: x\nlimits: {timeout: 1}", "'limits.timeout'", "did you mean 'timeout_s'?"),
        ("name: x\nby_name: {a: {tiemout_s: 1}}", "'by_name.a.tiemout_s'", "'timeout_s'"),
        ("name: x\nqqqq: 1", "unknown key 'qqqq'", "valid keys: by_name, limits, name"),
        ("limits: {}", "key 'name': is required and missing", "add 'name'"),
        ("name: [1]", "key 'name'", "correct 'name'"),
        ("- name", "no keys and values", "name"),
        ("", "no keys and values", "name"),
        ("name: x\nname: y", "line 2: the key 'name' is given twice", "line"),
        ("name: {a: 1, a: 2}", "the key 'a' is given twice", "line"),
        ("name: [", "line 1", "line"),
        ("name: !!python/object/apply:os.system [id]", "could not determine", "line"),
        ("a: \x01", "not allowed", "line"),
        ("[" * 5000, "", ""),
        ("name: 2020-13-01", "month", "quote"),
        ("name: !!bool maybe", "maybe", "quote"),
        ("name: !!timestamp x", "", "quote"),
        ("name: !!int x", "", "quote"),
        ("? [a]\n: b", "a key must be a plain value", "line"),
    ],
)
def test_a_wrong_file_is_answered_with_file_key_and_remedy(tmp_path, text, message, remedy) -> None:
    path = _file(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        parse_file(path, Outer)
    assert str(path) in caught.value.message
    assert message in caught.value.message
    assert remedy in caught.value.remedy


def test_a_file_that_is_missing_not_text_or_huge_is_refused(tmp_path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        read_yaml(tmp_path / "none.yaml")
    with pytest.raises(UsageError, match="cannot be read"):
        read_yaml(tmp_path)
    path = tmp_path / "binary.yaml"
    path.write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(UsageError, match="cannot be read"):
        read_yaml(path)
    with pytest.raises(UsageError, match="larger"):
        read_yaml(_file(tmp_path, "a: " + "x" * 1_000_001))
