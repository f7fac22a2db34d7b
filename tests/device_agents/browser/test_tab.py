"""A real page in headless Chromium measures with the real libraries; what goes wrong is typed."""

import json
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from browser_tab import LONG, SHORT, Opened, free_port, task_of, until
from forged_page import ForgedPage
from programs import need
from tiny_onnx import save_tiny_onnx
from wording import has

from fleetrank.device_agents.browser import assets
from fleetrank.device_agents.browser import desk as desk_module
from fleetrank.device_agents.browser.agent import BrowserAgent
from fleetrank.device_agents.browser.certificate import fingerprint, self_signed
from fleetrank.device_agents.browser.desk import hash_of
from fleetrank.device_agents.browser.place import Place
from fleetrank.device_agents.browser.tab_messages import TabArray, TabFacts
from fleetrank.device_agents.browser.tab_server import serving
from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.task import RepeatLimits
from fleetrank.device_agents.errors import MissingLibraryError
from fleetrank.device_agents.linux.patience import measure_when_fit
from fleetrank.foundation.vocabulary import ErrorKind, Flag, SampleKind, Status

Open = Callable[..., Opened]
pytestmark = [pytest.mark.browser, pytest.mark.slow]


def failure(found: Measurement) -> tuple[ErrorKind, str]:
    assert found.failure is not None, found
    return found.failure.kind, found.failure.message


def test_a_page_measures_both_libraries_and_its_outputs_are_those_of_this_host(
    opened: Open, tmp_path: Path
) -> None:
    tab = opened()
    path = save_tiny_onnx(tmp_path / "tiny.onnx")
    for task in (task_of("a", path=path, threads=2), task_of("b", "litert-web")):
        found = tab.measure(task)
        assert found.failure is None
        settings = dict(found.worker.settings) if found.worker else {}
        assert settings["threads"] == task.execution.threads
        assert float(settings["max_relative_error"]) < 1e-5
        assert settings["is_isolated"] is True
        assert Flag.SELF_REPORTED in found.flags
        # The clock is finer than that: a run of microseconds is measured in blocks.
        runs, step_ns = int(settings["runs_per_sample"]), int(settings["clock_step_ns"])
        assert found.sample_kind is SampleKind.THROUGHPUT_DERIVED
        assert runs > 1
        assert (found.latency_ns or 0) * runs > 25 * step_ns
        assert found.snr_db is None or found.snr_db > 90
        assert None not in (found.load_ns, found.first_inference_ns, found.warmup_runs)
    facts = tab.agent.probe()
    assert facts.device_model.startswith("chromium ")
    assert facts.tier == "edge"


@pytest.mark.thorough
def test_what_ends_a_repeat_in_the_middle_is_transient_and_the_next_one_is_measured(
    opened: Open,
) -> None:
    tab = opened()
    long = replace(task_of("long"), policy=LONG)

    hidden = tab.begin(long)
    tab.until_measuring()
    tab.page.evaluate(
        "Object.defineProperty(document, 'hidden', {get: () => true, configurable: true});"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    kind, message = failure(tab.wait(hidden))
    assert kind is ErrorKind.UNFIT_CONDITIONS
    assert has(message, "hidden")
    # While nobody sees it, it is not asked at all.
    assert "hidden" in failure(tab.agent.measure(task_of("hidden")))[1]

    tab.page.reload()
    until(tab.page, "Waiting")
    reloaded = tab.begin(long)
    tab.until_measuring()
    tab.page.reload()
    found = tab.wait(reloaded)
    assert failure(found)[0] is ErrorKind.DEVICE_LOST
    assert found.failure is not None
    assert found.failure.is_transient

    assert tab.measure(task_of("after")).status is Status.OK
    tab.page.close()
    away = tab.pool.submit(tab.agent.measure, task_of("closed")).result(timeout=60)
    assert away.failure is not None
    assert away.failure.is_transient
    assert "open http://127.0.0.1" in away.failure.remedy


@pytest.mark.thorough
def test_a_frozen_page_is_refused_though_no_event_says_so(opened: Open) -> None:
    tab = opened()
    frozen = tab.begin(replace(task_of("frozen"), policy=replace(LONG, max_time_s=6.0)))
    tab.until_measuring()
    renderers = [
        one
        for one in psutil.Process().children(recursive=True)
        if one.status() != psutil.STATUS_ZOMBIE and "--type=renderer" in one.cmdline()
    ]
    for one in renderers:
        one.suspend()
    time.sleep(2.5)  # as a phone that is put away for a moment
    for one in renderers:
        one.resume()
    kind, message = failure(frozen.result(timeout=60))
    assert kind is ErrorKind.UNFIT_CONDITIONS
    assert "frozen for" in message


@pytest.mark.thorough
def test_threads_that_a_page_does_not_get_are_refused(opened: Open) -> None:
    """Without isolation the library takes one thread and says nothing."""
    tab = opened()

    def without_isolation(route: object) -> None:
        reply = route.fetch()  # type: ignore[attr-defined]
        names = {"cross-origin-opener-policy", "cross-origin-embedder-policy"}
        headers = {name: one for name, one in reply.headers.items() if name not in names}
        route.fulfill(response=reply, headers=headers)  # type: ignore[attr-defined]

    tab.context.route("**/", without_isolation)
    tab.page.reload()
    assert tab.page.evaluate("self.crossOriginIsolated") is False
    until(tab.page, "Waiting")
    kind, message = failure(tab.measure(task_of("2", threads=2)))
    assert kind is ErrorKind.UNSUPPORTED
    assert has(message, "2 threads", "uses 1")
    one = tab.measure(task_of("1"))
    assert one.failure is None
    settings = dict(one.worker.settings) if one.worker else {}
    assert settings["is_isolated"] is False
    assert int(settings["clock_step_ns"]) > 50_000


@pytest.mark.thorough
def test_two_tabs_of_one_browser_are_one_device(opened: Open) -> None:
    tab = opened()
    first = tab.begin(replace(task_of("long"), policy=replace(LONG, max_time_s=4.0)))
    tab.until_measuring()
    second = tab.context.new_page()
    second.goto(tab.place.link)
    until(second, "another tab")
    assert tab.wait(first).status is Status.OK
    # The one that was opened last is the device now.
    until(second, "Waiting")
    until(tab.page, "another tab")
    assert tab.measure(task_of("next")).status is Status.OK


@pytest.mark.thorough
def test_a_damaged_file_a_wrong_link_and_another_version_are_said(
    opened: Open, tmp_path: Path
) -> None:
    tab = opened()
    damaged = tmp_path / "damaged.onnx"
    damaged.write_bytes(b"no network")
    assert failure(tab.measure(task_of("x", path=damaged)))[0] is ErrorKind.BAD_ARTIFACT
    other = tab.context.browser.new_context() if tab.context.browser else None
    assert other is not None
    stranger = other.new_page()
    stranger.goto(f"{tab.place.link}#pair=token-of-this-test")
    until(stranger, "used up")
    other.close()
    newer = replace(tab, options={**tab.options, "engine": "chromium 1"})
    kind, message = failure(newer.measure(task_of("y")))
    assert kind is ErrorKind.DEVICE_LOST
    assert message.endswith("was chromium 1")


@pytest.mark.thorough
def test_a_server_that_ends_and_returns_is_found_again(opened: Open) -> None:
    tab = opened()
    assert tab.measure(task_of("1")).status is Status.OK
    tab.context.set_offline(True)
    away = tab.begin(task_of("2"))
    until(tab.page, "does not run now")
    tab.context.set_offline(False)
    found = tab.wait(away)
    assert found.failure is None or found.failure.is_transient
    assert tab.measure(task_of("3")).status is Status.OK


@pytest.mark.thorough
def test_a_page_on_another_device_needs_a_certificate_and_is_isolated_with_one(
    opened: Open, tmp_path: Path
) -> None:
    host = own_address()
    certificate, key = self_signed(host, tmp_path)
    assert key.stat().st_mode & 0o077 == 0
    assert len(fingerprint(certificate)) == 95
    place = Place(
        listen=f"{host}:{free_port()}", certificate=str(certificate), private_key=str(key)
    )
    tab = opened(place=place)
    assert tab.page.evaluate("self.crossOriginIsolated") is True
    assert tab.measure(task_of("tls", threads=2)).status is Status.OK


@pytest.mark.thorough
def test_a_slow_line_delays_a_repeat_and_changes_no_figure(opened: Open, tmp_path: Path) -> None:
    tab = opened()
    session = tab.context.new_cdp_session(tab.page)
    session.send("Network.enable")
    session.send(
        "Network.emulateNetworkConditions",
        {"offline": False, "latency": 800, "downloadThroughput": 4e6, "uploadThroughput": 1e6},
    )
    found = tab.measure(replace(task_of("slow"), limits=RepeatLimits(timeout_s=120.0)))
    assert found.status is Status.OK
    assert dict(found.worker.settings if found.worker else ())["longest_gap_ns"] < 1.5e9


@pytest.mark.thorough
def test_firefox_measures_by_itself(libraries: None, tmp_path: Path) -> None:
    firefox = need("firefox-esr")
    with paired_by(firefox, "--headless", "--no-remote", "--profile", tmp_path) as (agent, facts):
        assert facts.engine.startswith("firefox ")
        for task in (task_of("1", threads=2), task_of("2", "litert-web")):
            assert measure_when_fit(agent, task, print).failure is None


@pytest.mark.thorough
def test_a_software_adapter_is_no_device(libraries: None, tmp_path: Path) -> None:
    # A browser of its own: Playwright has one loop in a thread.
    with paired_by(
        need("chromium"), "--headless", "--no-sandbox", "--disable-background-networking",
        "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader", "--enable-unsafe-swiftshader",
        f"--user-data-dir={tmp_path}",
    ) as (agent, facts):  # fmt: skip
        if facts.adapter is None:
            pytest.skip("this Chromium has no software adapter")
        for runtime in ("onnx-web", "litert-web"):
            wasm = task_of(runtime, runtime)
            task = replace(wasm, execution=replace(wasm.execution, backend="webgpu"))
            kind, message = failure(measure_when_fit(agent, task, print))
            assert kind is ErrorKind.UNSUPPORTED
            assert has(message, "software adapter")


@contextmanager
def paired_by(*command: str | Path) -> Iterator[tuple[BrowserAgent, TabFacts]]:
    """A browser without a driver, which opens the link of a registration by itself."""
    place = Place(listen=f"127.0.0.1:{free_port()}")
    desk = serving(place)
    desk.token = "token-of-this-test"
    words = (*command, f"{place.link}#pair={desk.token}")
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as browser:
        try:
            paired = desk.wait_for_pairing(60)
            assert paired is not None
            key_hash, facts = paired
            options = {"listen": place.listen, "key_hash": key_hash, "engine": facts.engine}
            yield BrowserAgent(options), facts
        finally:
            browser.terminate()


def test_missing_libraries_are_said_before_a_link_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assets, "LIBRARIES", tmp_path)
    assets.served_files.cache_clear()
    with pytest.raises(MissingLibraryError) as raised:
        serving(Place(listen=f"127.0.0.1:{free_port()}"))
    assert "make browser-assets" in raised.value.remedy


def own_address() -> str:
    """An address of this computer that is not loopback; no packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no network")
        return str(probe.getsockname()[0])


def test_forged_answers_are_refused_one_by_one_and_nothing_else_is_disturbed(
    libraries: None, tmp_path: Path
) -> None:
    """A program with a device's key in place of a page; no browser is needed."""
    place = Place(listen=f"127.0.0.1:{free_port()}")
    page = ForgedPage(place, serving(place))
    path = save_tiny_onnx(tmp_path / "tiny.onnx")
    honest = page.answer(task_of("0", path=path))
    assert honest.status is Status.OK
    many = SHORT.max_samples + 1
    for forged, word in (
        ({"samples_ns": [-1, *[10**6] * 20]}, "samples_ns is -1"),
        ({"samples_ns": [0] * 20}, "samples_ns is 0"),
        ({"samples_ns": []}, "it has no result"),
        ({"samples_ns": [10**400]}, "within 64 bits"),
        ({"samples_ns": [1] * many}, f"more than {SHORT.max_samples}"),
        ({"samples_ns": [10**12]}, "its times sum up to"),
        ({"samples_ns": [1.5]}, "should be int"),
        ({"threads": 2}, "2 threads ran"),
        ({"stop_reason": "<b>tired</b>"}, "unknown reason"),
        ({"runs_per_sample": 0}, "impossible"),
        ({"energy": 1}, "has no field 'energy'"),
        ({"outputs": [TabArray(name="y", dtype="float32", shape=(1, 9))]}, "more bytes than"),
        ({"outputs": [TabArray(name="y", dtype="float32", shape=(99, 99))]}, "is cut off"),
        ({"outputs": [TabArray(name="y", dtype="object", shape=(1,))]}, "which cannot be"),
    ):
        kind, message = failure(page.answer(task_of(word, path=path), **forged))
        assert kind is ErrorKind.BAD_OUTPUT, message
        assert word in message
    for shape, dtype, word in (
        ([1, 3, 9, 9], "float32", "cannot run the file"),
        ([10**8, 3, 16, 16], "float32", "too large"),
        ([1], "object", "which cannot be"),
    ):
        asked = page.answer(task_of(word, path=path), inputs=(shape, dtype))
        assert failure(asked)[0] is ErrorKind.BAD_OUTPUT
        assert word in failure(asked)[1]
    kind, message = failure(page.answer(task_of("w", path=path), scale=1.5))
    assert kind is ErrorKind.WRONG_OUTPUT
    assert has(message, "than here")
    assert page.answer(task_of("last", path=path)).status is Status.OK


def test_a_stranger_gets_nothing_and_a_late_answer_changes_nothing(
    libraries: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk_module, "POLL_S", 0.2)
    place = Place(listen=f"127.0.0.1:{free_port()}")
    desk = serving(place)
    page = ForgedPage(place, desk)
    assert page.post("next", page.call(), key="another-key-of-20-letters")[0] == 403
    assert page.post("next", page.call(), key="")[0] == 403
    assert page.post("pair", {"token": "guess", "facts": page.facts})[0] == 403
    agent = {**page.facts, "agent": "x" * 10_000}
    assert page.post("next", {**page.call(), "facts": agent})[0] == 204
    without = {**page.facts, "has_wasm": False}
    status, text = page.post("next", {**page.call(), "facts": without})
    assert (status, "has no WebAssembly" in text) == (422, True)
    assert page.post("next", {"tab": 1})[0] == 422
    assert page.post("beat", "x" * 10**5)[0] == 422
    late = {"tab": page.tab, "task_id": "sweep/cell/0/over", "is_gone": False}
    assert page.post("beat", late)[0] == 410
    for name in ("/../pyproject.toml", "/api/file/" + "0" * 64, "/assets/x/..%2f..%2fagent.py"):
        request = urllib.request.Request(
            place.link + name[1:], headers={"authorization": f"Bearer {page.key}"}
        )
        with pytest.raises(urllib.error.HTTPError) as error:
            urllib.request.urlopen(request, timeout=10)
        assert error.value.code in (404, 410)
        error.value.close()
    assert json.loads(text)["remedy"]
    assert hash_of(page.key) in desk.expected
