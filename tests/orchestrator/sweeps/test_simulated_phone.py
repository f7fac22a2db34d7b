"""A simulated phone, tried out as a user does: added, measured by the printed lines, compared."""

import shlex

import pytest

from fleetrank.orchestrator.cli import devices_command

PHONE = ("--kind", "simulated", "--option", "tier=edge", "--option", "device_model=Pixel 8")


def test_the_printed_lines_measure_a_phone_and_compare_it_with_this_host(
    folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices_command, "_TRIED", ("m0", "m1"))
    path, _, *lines = folder.call("devices", "add", "pixel", *PHONE).stdout.splitlines()
    assert path.endswith("pixel.yaml")
    measure, compare = (shlex.split(line)[1:] for line in lines)
    measured = folder.call(*measure, "--repeats", "2", "--max-time", "0.1")
    assert measured.returncode == 0, measured.stderr
    rows = [row for row in folder.rows() if row["device"] == "pixel"]
    assert len(rows) == 4
    facts = {(row["device_model"], row["tier"], row["origin"]) for row in rows}
    assert facts == {("Pixel 8", "edge", "simulated")}
    said = folder.call(*compare).stdout
    assert "SIMULATED DATA: " in said
    assert "pixel" in said.partition("SIMULATED DATA")[0]
    real = folder.call(*(word for word in compare if word != "--include-simulated")).stdout
    assert "pixel" not in real
    assert "SIMULATED" not in real


def test_another_kind_and_a_device_of_another_host_are_tried_in_their_own_way(folder) -> None:
    for words in (("--kind", "cpu"), (*PHONE, "--host", "lab")):
        said = folder.call("devices", "add", f"one-{len(words)}", *words)
        assert len(said.stdout.splitlines()) == 1, said.stderr


def test_a_hot_phone_slows_down_and_a_lost_one_is_asked_again(folder) -> None:
    options = ("heat=1.0", "overhead_us=200000.0"), ("loss_rate=1.0",)
    for name, chosen in zip(("hot", "lost"), options, strict=True):
        more = [f"--option={one}" for one in chosen]
        assert folder.call("devices", "add", name, *PHONE, *more).returncode == 0
    spec = folder.write_spec(["m0"], ["hot", "lost"])
    spec.write_text(spec.read_text().replace("max_time_s: 0.1", "max_time_s: 20.0"))
    folder.call("sweep", "run", "t", "--inline")
    rows = folder.rows()
    assert {row["origin"] for row in rows} == {"simulated"}
    hot, lost = ([row for row in rows if row["device"] == name] for name in ("hot", "lost"))
    assert [(row["status"], "drift" in row["flags"]) for row in hot] == [("ok", True)] * 2
    assert {row["error_kind"] for row in lost} == {"device_lost"}
    assert [row["attempt"] for row in lost].count(1) == 2, "each repeat was tried again"
