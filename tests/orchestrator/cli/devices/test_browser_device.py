"""`fleetrank devices add NAME --browser` with a real browser, until its rows are in a table."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from adb_bench import keep_canary
from browser_tab import free_port
from command_line import COMMAND, run_command, run_inside
from programs import need
from tiny_onnx import save_tiny_onnx
from wording import has

from fleetrank.device_agents.browser.assets import LIBRARIES

Capture = pytest.CaptureFixture[str]


@pytest.mark.thorough
@pytest.mark.browser
def test_a_browser_is_registered_measured_and_counts_once_it_is_accepted(tmp_path: Path) -> None:
    if not (LIBRARIES / "litert.js").is_file():
        pytest.skip("needs `make browser-assets`")
    chromium = need("chromium")
    work = tmp_path / "work"
    assert run_command(tmp_path, "init", str(work)).code == 0
    keep_canary(work / "artifacts")
    save_tiny_onnx(work / "tiny.onnx")
    address = f"127.0.0.1:{free_port()}"
    add = [COMMAND, "devices", "add", "tab", "--browser", "--address", address]
    add += ["--option", "canary_tolerance=50"]  # other tests run beside
    with subprocess.Popen(add, cwd=work, stderr=subprocess.PIPE, text=True) as adding:
        assert adding.stderr is not None
        said = adding.stderr.readline()
        link = re.search(r"http://\S+#pair=\S+", said)
        assert link is not None, said
        browser = subprocess.Popen(
            [
                chromium, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
                "--disable-background-networking", f"--user-data-dir={tmp_path / 'profile'}",
                link[0],
            ],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            text = adding.stderr.read()
            assert adding.wait(timeout=120) == 0, text
            assert "█" in text
            assert "found chromium" in text
            runtimes = ("--runtime", "onnx", "--runtime", "onnx-web")
            short = ("--repeats", "1", "--max-time", "0.2")
            run = run_command(
                work, "run", "tiny.onnx", "--devices", "local-cpu,tab", *runtimes, *short
            )
            assert run.code == 0, run.stderr
            assert "not accepted: `fleetrank devices accept tab`" in run.stdout
        finally:
            browser.terminate()
            browser.wait(timeout=20)
    latency = ("report", "show", "latency", "--json")
    assert "tab/" not in run_command(work, *latency).stdout
    assert run_command(work, "devices", "accept", "tab").stdout.endswith("count now\n")
    (row,) = (
        one
        for one in json.loads(run_command(work, *latency).stdout)["rows"]
        if one["platform_key"].startswith("tab/onnx-web/wasm/")
    )
    assert row["latency_p50_ms"] > 0
    again = run_command(work, "devices", "accept", "tab", "--json")
    assert json.loads(again.stdout)["is_new"] is False


def test_what_a_browser_cannot_be_is_said_before_anything_is_served(
    tmp_path: Path, capfd: Capture
) -> None:
    run_inside(tmp_path, "init", str(tmp_path), capture=capfd)
    for words, said in (
        (("--browser", "--kind", "android"), "--browser is given, but --kind is android"),
        (("--browser", "--adb", "x"), "are both given"),
        (("--browser", "--address", "192.0.2.7:8766"), "measures only over https"),
        (("--browser", "--address", "here"), "is not an address and a port"),
        (("--browser", "--tls", "one.pem"), "is not two files"),
        (("--browser", "--tls", "no.pem,no.key"), "the certificate"),
        (("--tls", "self", "--ssh", "x"), "--tls is only for browsers"),
        (("--browser", "--option", "teir=gpu"), "has no option 'teir'"),
    ):
        ended = run_inside(tmp_path, "devices", "add", "tab", *words, capture=capfd)
        assert ended.code in (2, 4), (words, ended.stderr)
        assert said in ended.stderr, ended.stderr
    assert not list((tmp_path / "devices").glob("*.yaml"))


def test_a_host_skips_what_only_a_browser_runs(tmp_path: Path, capfd: Capture) -> None:
    run_inside(tmp_path, "init", str(tmp_path), capture=capfd)
    save_tiny_onnx(tmp_path / "tiny.onnx")
    run = run_inside(tmp_path, "run", "tiny.onnx", "--runtime", "onnx-web", "--json", capture=capfd)
    assert run.code == 4
    assert has(run.stderr, "onnx-web", "browser tab")
