"""Models that really run on this host, in the words of the programs of phones.

The contract suite of the agents runs a TFLite file on such a phone.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from adb_bench import OnePhone, open_bench

from fleetrank.device_agents.android.adb_server import AdbServer
from fleetrank.device_agents.contract.kind import VirtualMode
from fleetrank.device_agents.virtual_phone.imitation.command import stand_in_of

pytestmark = pytest.mark.adb

TMP = "/data/local/tmp"
TFLITE = Path(__file__).parents[1] / "data/tiny.tflite"


@pytest.fixture
def real_phone(
    adb_server: AdbServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[OnePhone]:
    # The lease of this test's own: another measurement on this host shall not hold it up.
    (tmp_path / "run").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    with open_bench(adb_server, tmp_path / "phones", Path.home(), VirtualMode.REAL) as bench:
        yield OnePhone(bench)


def push_tool(phone: OnePhone, tool: str, model: Path) -> None:
    phone.run("push", str(stand_in_of(tool)), f"{TMP}/{tool}")
    phone.run("push", str(model), f"{TMP}/model")


def test_what_this_host_cannot_run_fails_in_the_tools_own_words(
    real_phone: OnePhone, tmp_path: Path
) -> None:
    pytest.importorskip("ai_edge_litert")
    damaged = tmp_path / "damaged"
    damaged.write_bytes(TFLITE.read_bytes()[:64])
    push_tool(real_phone, "benchmark_model", damaged)
    done = real_phone.run("shell", f"{TMP}/benchmark_model --graph={TMP}/model")
    assert done.returncode != 0
    assert b"Inference (avg)" not in done.stdout
    real_phone.run("push", str(TFLITE), f"{TMP}/model")
    done = real_phone.run("shell", f"{TMP}/benchmark_model --graph={TMP}/model --use_gpu=true")
    assert (done.returncode, b"Failed to apply GPU" in done.stdout) == (1, True)
