"""A page in headless Chromium that is a registered device, and tasks for it."""

import socket
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fleetrank.device_agents.browser.agent import BrowserAgent
from fleetrank.device_agents.browser.desk import Desk
from fleetrank.device_agents.browser.place import Place
from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.device_agents.contract.task import (
    Execution,
    MeasurePolicy,
    MeasureTask,
    OptionValue,
    RepeatLimits,
)
from fleetrank.device_agents.linux.patience import measure_when_fit
from fleetrank.foundation.small_file import file_sha256
from fleetrank.foundation.vocabulary import Runtime
from fleetrank.models.networks import primer

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

SHORT = MeasurePolicy(
    min_warmup_runs=2, min_warmup_s=0.1, max_warmup_s=0.3, min_runs=20, min_observed_s=0.0,
    max_time_s=0.2,
)  # fmt: skip
LONG = replace(SHORT, min_runs=10**5, half_width=1e-9, max_time_s=30.0)
"""The repeat goes on until something ends it."""
PRIMERS = Path(primer.__file__).parent


def task_of(
    name: str = "1", runtime: str = "onnx-web", *, path: Path | None = None, **changes: object
) -> MeasureTask:
    """A task with a tiny file; `changes` are of its execution."""
    suffix = {"onnx-web": "onnx", "litert-web": "tflite"}[runtime]
    file = path or PRIMERS / f"primer.{suffix}"
    return MeasureTask(
        task_id=f"sweep/cell/0/{name}",
        artifact_path=str(file),
        artifact_sha256=file_sha256(file),
        execution=Execution(runtime=Runtime(runtime), backend="wasm", **changes),  # type: ignore[arg-type]
        is_trusted=True,
        policy=SHORT,
        limits=RepeatLimits(timeout_s=60.0),
    )


@dataclass(frozen=True, slots=True)
class Opened:
    """A device whose page is open."""

    place: Place
    desk: Desk
    page: "Page"
    context: "BrowserContext"
    options: dict[str, OptionValue]
    pool: ThreadPoolExecutor

    @property
    def agent(self) -> BrowserAgent:
        return BrowserAgent(self.options)

    def begin(self, task: MeasureTask) -> "Future[Measurement]":
        """Measures in another thread: this one has to serve Playwright."""
        return self.pool.submit(measure_when_fit, self.agent, task, lambda _line: None)

    def measure(self, task: MeasureTask) -> Measurement:
        return self.wait(self.begin(task))

    def wait(self, future: "Future[Measurement]", limit_s: float = 60.0) -> Measurement:
        for _ in range(int(limit_s * 20)):
            if future.done():
                break
            self.page.wait_for_timeout(50)
        return future.result(timeout=0)

    def until_measuring(self) -> None:
        self.page.wait_for_selector("#state.measuring")
        self.page.wait_for_timeout(500)  # beyond the warm-up


def until(page: "Page", words: str) -> None:
    """Waits until a page says something."""
    page.locator("#state", has_text=words).wait_for(timeout=60_000)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
