"""What is decided about a browser before and after its page is open; no network."""

from dataclasses import replace
from pathlib import Path

import pytest
from wording import has

from fleetrank.device_agents.browser.desk import Desk, Tab
from fleetrank.device_agents.browser.place import Place
from fleetrank.device_agents.browser.registrar import BrowserRegistrar, NewBrowser, code_of
from fleetrank.device_agents.browser.repeat import TabRepeat
from fleetrank.device_agents.browser.tab_messages import MAX_TEXT_BYTES, TabFacts, read_frame
from fleetrank.device_agents.browser.web_runtimes import why_unsupported
from fleetrank.device_agents.contract.agent import never_stop
from fleetrank.device_agents.contract.task import Execution, MeasurePolicy, MeasureTask
from fleetrank.device_agents.errors import MissingLibraryError, UnsupportedError
from fleetrank.device_agents.registration import try_out
from fleetrank.foundation.codec import CodecError
from fleetrank.foundation.vocabulary import Runtime

FACTS = TabFacts(
    agent="a" * 10_000, engine="webkit 18", system="iPhone", cores=6, memory_gib=None,
    is_isolated=True, has_wasm=True, clock_step_ns=1_000_000, adapter="apple",
)  # fmt: skip


def test_a_browser_is_registered_without_the_libraries_that_export_the_canary() -> None:
    found = NewBrowser(given={"listen": "127.0.0.1:8766"}, found=FACTS, key_hash="k")

    def canary() -> None:
        raise MissingLibraryError("litert-torch is not installed", "pip install it")

    said: list[str] = []
    data = try_out(found, found.options({}), canary, said.append)  # type: ignore[arg-type]
    assert data.canary_latency_ns == ()
    assert has(said[-1], "without a canary", "litert-torch")
    assert len(str(data.facts["agent"])) <= 256
    assert found.model == "webkit 18 on iPhone"


def test_another_version_of_a_browser_is_another_device() -> None:
    registrar = BrowserRegistrar({})
    one, two = (
        registrar.identity_of({"key_hash": "k", "engine": engine})
        for engine in ("webkit 18", "webkit 19")
    )
    assert one is not None
    assert not registrar.is_same(one, str(two))


def test_the_code_of_a_link_is_a_square_of_blocks() -> None:
    code = code_of("http://192.168.1.5:8766/#pair=0123456789abcdef")
    assert len({len(line) for line in code}) == 1
    assert set("".join(code)) <= set(" █▀▄")


@pytest.mark.parametrize(
    ("listen", "host", "is_here"),
    [
        ("127.0.0.1:8766", "127.0.0.1", True), ("localhost:1", "localhost", True),
        ("[::1]:80", "::1", True), ("192.168.1.5:8766", "192.168.1.5", False),
        ("my-laptop.local:8766", "my-laptop.local", False),
    ],
)  # fmt: skip
def test_a_place_says_who_reaches_it(listen: str, host: str, is_here: bool) -> None:
    place = Place(listen=listen)
    assert (place.host, place.is_here) == (host, is_here)


@pytest.mark.parametrize(
    ("execution", "word"),
    [
        (Execution(runtime=Runtime.ONNX, backend="cpu"), "not onnx"),
        (Execution(runtime=Runtime("litert-web"), backend="wasm", threads=2), "one thread"),
        (Execution(runtime=Runtime("onnx-web"), backend="webgpu", threads=2), "one thread"),
        (Execution(runtime=Runtime("onnx-web"), backend="cuda"), "no backend 'cuda'"),
        (Execution(runtime=Runtime("onnx-web"), backend="wasm", affinity=(0,)), "pinned"),
        (Execution(runtime=Runtime("onnx-web"), backend="wasm", is_profiled=True), "plain"),
    ],
)
def test_what_no_tab_can_execute_is_said_when_a_sweep_is_planned(
    execution: Execution, word: str
) -> None:
    assert has(str(why_unsupported(execution)), word)


def test_what_no_tab_can_load_or_time_is_refused_before_it_is_sent(tmp_path: Path) -> None:
    large = tmp_path / "large.onnx"
    with large.open("wb") as file:
        file.truncate(2**31)  # a hole: no disk is used
    small = tmp_path / "small.onnx"
    small.write_bytes(b"")
    task = MeasureTask(
        task_id="t",
        artifact_path=str(small),
        artifact_sha256="0",
        execution=Execution(runtime=Runtime("onnx-web"), backend="wasm"),
    )
    desk, tab = Desk(link="http://127.0.0.1:1/"), Tab("t", FACTS, is_hidden=False, seen_s=0.0)
    for changed, word in (
        (replace(task, artifact_path=str(large)), "2 GiB"),
        (replace(task, weights_path="w"), "weights beside it"),
        (replace(task, policy=MeasurePolicy(min_time_s=9.0)), "sustained"),
    ):
        with pytest.raises(UnsupportedError, match=word):
            TabRepeat(desk, "k", tab, changed, never_stop).measure()


@pytest.mark.parametrize(
    "data",
    [b"", b"\x00", b"\xff\xff\xff\xff", (MAX_TEXT_BYTES + 1).to_bytes(4, "big") + b"{}",
     b"\x00\x00\x00\x02{}", b"\x00\x00\x00\x02[]", b"\x00\x00\x00\x02\xff\xff"],
)  # fmt: skip
def test_a_damaged_answer_is_refused(data: bytes) -> None:
    with pytest.raises(CodecError):
        read_frame(data)
