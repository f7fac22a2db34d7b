"""A kind of device is added with one module and one entry, and no other file knows it."""

import json
from pathlib import Path

import pytest
from doc_blocks import Copy, recipes


@pytest.fixture
def copy_with_abacus(tmp_path: Path) -> dict[str, str]:
    """A copy of the packages with the kind of CONTRIBUTING; the environment that uses the copy."""
    copy = Copy(tmp_path / "other")
    copy.follow(recipes()["Add a device kind"])
    return {"PYTHONPATH": copy.import_path}


@pytest.mark.thorough
def test_a_kind_is_one_module_and_one_entry(folder, copy_with_abacus: dict[str, str]) -> None:
    def run(*words: str):
        done = folder.run(*words, env=copy_with_abacus)
        assert done.returncode == 0, done.stderr
        return done

    added = run("devices", "add", "beads", "--kind", "abacus", "--option", "noise=0.0")
    assert Path(added.stdout.strip()).name == "beads.yaml"
    assert "no option" in folder.run(
        "devices", "add", "more", "--kind", "abacus", "--option", "colour=red",
        env=copy_with_abacus,
    ).stderr  # fmt: skip
    folder.write_spec(["m0"], ["beads"])
    (planned,) = json.loads(run("sweep", "plan", "t", "--json").stdout)["cells"]
    assert "beads-onnx" in planned["platform"]
    run("sweep", "run", "t", "--inline")
    rows = folder.rows()
    assert [(row["status"], row["backend"]) for row in rows] == [("ok", "beads-onnx")] * 2
    assert {row["origin"] for row in rows} == {"simulated"}


def test_without_the_entry_the_kind_is_unknown(folder) -> None:
    done = folder.call("devices", "add", "beads", "--kind", "abacus")
    assert done.returncode == 2
    assert "unknown device kind 'abacus'" in done.stderr
