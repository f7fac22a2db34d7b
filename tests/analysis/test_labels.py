"""Names of platforms: what differs, and what all share."""

import polars as pl
import pytest

from fleetrank.analysis.labels import keys_in, labels_of
from fleetrank.analysis.tables.table import Table

PC = "pc/onnx/cpu/eager/fp32/b1/t1/afirst_cores/{}"


@pytest.mark.parametrize(
    ("keys", "names", "common"),
    [
        ([PC], ["pc, onnx, fp32, 1 thread"], ""),
        ([PC, PC.replace("t1", "t2")], ["1 thread", "2 threads"], "pc, onnx, fp32"),
        ([PC, "phone-8/tflite/gpu/eager/fp16/b1/t?/afree/{}"],
         ["pc, onnx, fp32, 1 thread", "phone-8, tflite, fp16"], ""),
        ([PC, PC.replace("/cpu/", "/xnnpack/")], ["cpu", "xnnpack"],
         "pc, onnx, fp32, 1 thread"),
        ([PC, PC.replace("eager", "compile").replace("b1", "b8")], ["eager, batch 1",
         "compile, batch 8"], "pc, onnx, fp32, 1 thread"),
        ([PC, PC.replace("{}", '{"amp":true,"path":"dlc"}')], ["no options", "amp, path=dlc"],
         "pc, onnx, fp32, 1 thread"),
        ([PC + "/seq=128", PC + "/seq=256"], ["seq=128", "seq=256"], "pc, onnx, fp32, 1 thread"),
        ([PC.replace("t1", "t2").replace("afirst_cores", "a0,1"), PC.replace("first_cores", "0")],
         ["2 threads", "1 thread"], "pc, onnx, fp32"),
        ([PC, PC.replace("first_cores", "1")], ["first cores", "CPUs 1"],
         "pc, onnx, fp32, 1 thread"),
        ([PC, "gpu"], ["pc, onnx, fp32, 1 thread", "gpu"], ""),
    ],
)  # fmt: skip
def test_a_name_has_the_parts_that_differ(keys: list[str], names: list[str], common: str) -> None:
    found = labels_of(keys)
    assert (list(found.names.values()), found.common) == (names, common)


def test_a_device_has_its_published_name() -> None:
    keys = [PC, PC.replace("pc", "hub-s24")]
    assert list(labels_of(keys, {"hub-s24": "Galaxy S24"}).names.values()) == ["pc", "Galaxy S24"]


def test_people_read_names_everywhere_but_in_commands() -> None:
    one, two = PC, PC.replace("t1", "t2")
    frame = pl.DataFrame({"platform_key": [one, two], "detail": ["-", f"equal to {one}: x"],
                          "command": ["-", f"exclude '{two}'"], "repeat": [0, 1]})  # fmt: skip
    table = Table(title="Audit", frame=frame, notes=(f"{two} is left out.",)).for_people()
    assert table.title == "Audit (pc, onnx, fp32)"
    assert table.frame["platform_key"].to_list() == ["1 thread", "2 threads"]
    assert table.frame["detail"][1] == "equal to 1 thread: x"
    assert table.frame["command"][1] == f"exclude '{two}'"
    assert (table.notes, table.frame["repeat"].to_list()) == (("2 threads is left out.",), [1, 2])
    assert keys_in([f"a {one} b {two}/seq=9, c"]) == [one, f"{two}/seq=9"]
