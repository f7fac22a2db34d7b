"""The agent of a browser: it gives each task to the browser's tab and waits for the measurement.

It keeps no state; the server of its address runs as long as the process.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from fleetrank.device_agents.browser.desk import Tab
from fleetrank.device_agents.browser.place import Place
from fleetrank.device_agents.browser.repeat import TabRepeat
from fleetrank.device_agents.browser.tab_messages import TabFacts, options_of, words
from fleetrank.device_agents.browser.tab_server import serving
from fleetrank.device_agents.browser.web_runtimes import in_a_tab, why_unsupported
from fleetrank.device_agents.canary import CANARY_LIMIT_S, between_canaries
from fleetrank.device_agents.contract.agent import (
    DeviceFacts,
    StopRequested,
    never_stop,
    read_fields,
)
from fleetrank.device_agents.contract.failures import failure_from_error
from fleetrank.device_agents.contract.measurement import Failure, Measurement, failed, utc_now
from fleetrank.device_agents.contract.task import Execution, InferTask, MeasureTask, OptionValue
from fleetrank.device_agents.errors import PermanentError, UnsupportedError, UnusableDeviceError
from fleetrank.device_agents.linux.worker_client import infer_in_worker
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.vocabulary import Origin, Tier

BARE_RUNS = 100
_BESIDE_S = 120.0
"""For the file on a slow line, and the outputs that this host computes."""
_EXTRA = ("adapter", "agent", "clock_step_ns", "engine", "is_isolated")
"""Fields of `TabFacts` that a row has by the same names."""
_ARRIVAL_S = 4.0
"""A page asks again within 2 s after a server has started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserOptions:
    """The options in a device file.

    Attributes:
        listen: as in `Place`, and so are certificate and private_key.
        key_hash: of the key that the browser keeps; no other browser is the device.
        engine: name and major version at registration: another version is another device.
        tier: of its rows.
        canary_tolerance: least accepted deviation of the canary; tabs share their computer.
    """

    listen: str
    certificate: str | None = None
    private_key: str | None = None
    key_hash: str | None = None
    engine: str | None = None
    tier: str = Tier.EDGE.value
    canary_tolerance: float = 0.25

    @property
    def place(self) -> Place:
        """Where its page is served."""
        return Place(listen=self.listen, certificate=self.certificate, private_key=self.private_key)


def read_options(options: Mapping[str, OptionValue]) -> BrowserOptions:
    """Reads the options of a device file.

    Raises:
        PermanentError: an unknown or missing name, a wrong value, or an address without a port.
    """
    read = read_fields(BrowserOptions, "browser", options)
    if read.tier not in list(Tier):
        raise PermanentError(f"unknown tier {read.tier!r}", f"use one of: {', '.join(Tier)}")
    place = read.place
    if (read.certificate is None) != (read.private_key is None):
        raise PermanentError("a certificate needs its key", "give both files with `tls`")
    if place.port and not place.is_here and read.certificate is None:
        raise PermanentError(
            f"a browser elsewhere measures only over https, and {read.listen} has no certificate",
            "give `tls` a certificate and its key, or `self` to make them",
        )
    return read


def facts_of(facts: TabFacts, tier: str) -> DeviceFacts:
    """What a page said of its browser, as facts of a device."""
    said = {name: getattr(facts, name) for name in _EXTRA}
    return DeviceFacts(
        device_model=words(f"{facts.engine} on {facts.system}"),
        tier=Tier(tier),
        origin=Origin.MEASURED,
        os=words(facts.system),
        arch="wasm",
        logical_cores=facts.cores,
        extra=options_of({**said, "memory_class_gib": facts.memory_gib}),
    )


class BrowserAgent:
    """The `browser` device kind; its options are those of `BrowserOptions`."""

    def __init__(self, options: Mapping[str, OptionValue]) -> None:
        """Reads the options; nothing is served before the first call."""
        self._options = read_options(options)

    def probe(self) -> DeviceFacts:
        """Describes the browser whose tab is open."""
        return facts_of(self._tab().facts, self._options.tier)

    def why_unsupported(self, execution: Execution) -> str | None:
        """Says why a tab cannot execute this, or `None`."""
        return why_unsupported(execution)

    def longest_s(self, task: MeasureTask) -> float:
        """The longest time of `measure`, which waits for no tab."""
        canary_s = 0.0 if task.canary is None else 2 * CANARY_LIMIT_S
        return task.limits.timeout_s + canary_s + _BESIDE_S

    def measure(self, task: MeasureTask, stop_requested: StopRequested = never_stop) -> Measurement:
        """Measures one repeat in a fresh worker of the page."""
        started = utc_now()
        try:
            if (reason := why_unsupported(in_a_tab(task).execution)) is not None:
                raise UnsupportedError(reason, "remove this combination from the sweep")
            (found,) = between_canaries(
                task.canary,
                lambda one: self._repeat(one, stop_requested).measure(),
                self._options.canary_tolerance,
                lambda: [self._repeat(task, stop_requested).measure()],
            )
        except FleetError as error:
            found = failed(task.task_id, failure_from_error(error, "timed"))
        return replace(found, started_utc=started, finished_utc=utc_now())

    def measure_bare(self, task: MeasureTask) -> tuple[int, ...]:
        """A plain loop of the same library in a fresh worker of the same page."""
        return self._repeat(task, never_stop, BARE_RUNS).measure().samples_ns

    def infer(self, task: InferTask, stop_requested: StopRequested = never_stop) -> Failure | None:
        """Runs the file on this host's CPU, which computes the same outputs."""
        return infer_in_worker(task, stop_requested)

    def _repeat(
        self, task: MeasureTask, stop_requested: StopRequested, bare_runs: int | None = None
    ) -> TabRepeat:
        tab, desk = self._tab(), serving(self._options.place)
        return TabRepeat(desk, self._key(), tab, in_a_tab(task), stop_requested, bare_runs)

    def _key(self) -> str:
        if self._options.key_hash is None:
            raise UnusableDeviceError(
                "the device file has no key of a browser", "register it with `browser=true`"
            )
        return self._options.key_hash

    def _tab(self) -> Tab:
        """The tab of the registered browser, in the registered version."""
        tab = serving(self._options.place).tab(self._key(), _ARRIVAL_S)
        if words(tab.facts.engine) != self._options.engine:
            raise UnusableDeviceError(
                f"the browser is {words(tab.facts.engine)} now, and was {self._options.engine}",
                "it measures otherwise: register it again under another name",
            )
        return tab
