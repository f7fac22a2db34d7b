"""`sweep resume --with HOST`: the host must answer."""

import pytest


@pytest.mark.slow
def test_a_resume_without_a_host_that_it_needs_does_not_start(folder) -> None:
    folder.write_spec(["m0"], ["sim-a"], repeats=1)
    assert folder.call("sweep", "run", "sweeps/t.yaml", "--inline").returncode == 0
    resume = ("sweep", "resume", "--inline", "--with")
    assert folder.call(*resume, "local").returncode == 0
    wrong = folder.call(*resume, "lab")
    assert wrong.returncode != 0
    assert all(text in wrong.stderr for text in ("host lab", "local"))
