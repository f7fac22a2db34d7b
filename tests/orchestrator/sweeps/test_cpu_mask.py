"""The CPU under another mask, as `taskset` and a container's cpuset set it."""

import json
import os

import pytest

pytestmark = pytest.mark.slow

CPUS = sorted(os.sched_getaffinity(0))
MASKS = [("taskset", "-c", str(cpu)) for cpu in (CPUS[0], CPUS[-1])]
needs_two = pytest.mark.skipif(len(CPUS) < 2, reason="needs two CPUs that it may use")


@pytest.mark.thorough
@needs_two
def test_a_gate_of_two_equal_sweeps_compares_them_under_another_mask(folder) -> None:
    folder.write_spec(("m0",), ["local-cpu"], repeats=5)
    for mask in MASKS:
        done = folder.run("sweep", "run", "t", "--inline", before=mask)
        assert done.returncode == 0, done.stderr
        rows = folder.rows()
        assert {row["worker_affinity"] for row in rows} == {mask[-1]} == {
            row["affinity"] for row in rows
        }  # fmt: skip
        assert {row["cpu_choice"] for row in rows} == {"first_cores"}
    # A second of noise between two cores of a busy host must not decide this test.
    words = ("report", "compare", *folder.store.sweep_ids(), "--margin", "500%", "--json")
    done = folder.call(*words)
    answer = json.loads(done.stdout)
    assert [row["n_a"] for row in answer["rows"]] == [row["n_b"] for row in answer["rows"]] == [5]
    assert {row["platform_key"] for row in answer["rows"]} == {
        f"{folder.rows()[0]['device']}/onnx/cpu/eager/fp32/b1/t1/afirst_cores/{{}}"
    }
    assert done.returncode == 0, done.stderr
    (cores,) = (one for one in answer["differences"] if one["fact"] == "worker_affinity")
    assert (cores["value_a"], cores["value_b"]) == (MASKS[0][-1], MASKS[1][-1])


@pytest.mark.thorough
@needs_two
def test_sweeps_of_listed_cpus_are_two_platforms_and_the_message_says_so(folder) -> None:
    for cpu in (CPUS[0], CPUS[-1]):
        path = folder.write_spec(("m0",), ["local-cpu"], repeats=1)
        path.write_text(f"{path.read_text()}affinity: [{cpu}]\n")
        assert folder.call("sweep", "run", "t", "--inline").returncode == 0
    done = folder.call("report", "compare", *folder.store.sweep_ids())
    assert done.returncode == 4
    assert f"/a{CPUS[0]}/" in done.stderr
    assert f"/a{CPUS[-1]}/" in done.stderr
    assert "`affinity`" in done.stderr
