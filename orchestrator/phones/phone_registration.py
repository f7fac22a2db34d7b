"""Registers a phone: its properties, the programs that run on it, and its repeatability."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from fleetrank.device_agents.android.adb.adb_server import AdbServer
from fleetrank.device_agents.android.adb.phone import Phone
from fleetrank.device_agents.android.options import TOOLS, read_options
from fleetrank.device_agents.android.programs.download import fetch
from fleetrank.device_agents.android.programs.tool_store import ToolStore
from fleetrank.device_agents.android.programs.tools import (
    Tool,
    choose_tool,
    file_sha256,
    load_catalogue,
)
from fleetrank.device_agents.android.state.probe import probe_phone
from fleetrank.device_agents.android.state.probe_text import PhoneFacts, why_refused
from fleetrank.device_agents.contract.task import OptionValue
from fleetrank.device_agents.errors import UnsupportedError
from fleetrank.device_agents.virtual_phone.handset.standin import standin_path
from fleetrank.foundation.errors import FleetError
from fleetrank.models.cards.card import Artifact
from fleetrank.orchestrator.errors import NothingToDoError, UsageError
from fleetrank.orchestrator.phones.phone_trial import TOOL, PhoneTrial
from fleetrank.orchestrator.workspace.device_registry import PHONE, DeviceFile, Registration
from fleetrank.orchestrator.workspace.yaml_file import parse_content

_PROBED = (
    "manufacturer", "model", "soc", "memory_bytes", "android_release", "sdk", "build",
    "fingerprint", "gpu", "has_thermal", "has_battery", "has_exit_codes", "has_taskset",
)  # fmt: skip
"""Facts that identify a phone; free space and current clocks do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhoneRequest:
    """The user's request.

    Attributes:
        serial: serial number as adb shows it.
        name: `None` keeps the registered name, or derives one from the model.
        host: cluster host it is attached to; `None` keeps the registered one.
        tools: the user's own programs, by name.
        options: options of its agent, which checks them.
    """

    serial: str
    name: str | None
    labels: Mapping[str, str]
    tools: Mapping[str, Path]
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    host: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Registrar:
    """The tools that registration uses.

    Attributes:
        canary: returns the exported canary model; called only if a program can run it.
        store: folder for the programs on this host.
        tell: receives lines about the progress.
    """

    server: AdbServer
    store: ToolStore
    canary: Callable[[], Artifact]
    tell: Callable[[str], None]

    def register(self, request: PhoneRequest, known: Collection[DeviceFile]) -> DeviceFile:
        """Probes a phone, tests a program on it and returns its description; writes no file.

        Args:
            request: the user's request.
            known: registered devices; the same phone keeps its name, labels and options.

        Raises:
            UsageError: the name belongs to another device or is invalid.
            NothingToDoError: the phone is unreachable or unusable; the remedy names the problem.
        """
        try:
            return self._register(request, known)
        except FleetError as error:
            raise NothingToDoError(error.message, error.remedy) from error

    def _register(self, request: PhoneRequest, known: Collection[DeviceFile]) -> DeviceFile:
        facts = self.probe(request.serial)
        self.tell(f"{facts.device_model}, Android {facts.android_release}, {facts.soc}")
        before = find_phone(known, facts.serial_hash)
        options = self._options(request, facts, before)
        # Checks the user's input first, because the canary takes a minute.
        content = {
            "name": _name(request, facts, before, {device.name for device in known}),
            "kind": PHONE,
            "host": request.host or (before.host if before else None),
            "options": options,
            "labels": {**(before.labels if before else {}), **request.labels},
        }
        device = parse_content(f"phone {request.serial!r}", DeviceFile, content)
        registration = self._try_canary(options, registration_of(facts))
        return device.model_copy(update={"registration": registration})

    def probe(self, serial: str) -> PhoneFacts:
        """Reads a phone's properties; connects to it first if it is on the network.

        Raises:
            FleetError: it does not answer, or does not meet the programs' requirements.
        """
        phone = Phone(self.server, serial)
        phone.connect()
        facts = probe_phone(phone)
        refusal = why_refused(facts)
        if refusal is not None:
            raise UnsupportedError(f"{facts.device_model}: {refusal.reason}", refusal.remedy)
        return facts

    def _try_canary(
        self, options: Mapping[str, OptionValue], registration: Registration
    ) -> Registration:
        """The registration with the canary's results; unchanged without the canary's program."""
        if TOOL not in options:
            self.tell(f"no canary without {TOOL}: only temperature and clocks are checked")
            return registration
        trial = PhoneTrial(
            options=options,
            artifact=self.canary(),
            affinity=registration.canary_affinity,
            tell=self.tell,
        )
        latencies_ns = trial.latencies_ns()
        facts = registration.facts | {"delegates": trial.delegates()}
        return registration.model_copy(update={"canary_latency_ns": latencies_ns, "facts": facts})

    def _options(
        self, request: PhoneRequest, facts: PhoneFacts, before: DeviceFile | None
    ) -> dict[str, OptionValue]:
        """The options for its agent; keeps values that the user has set before."""
        options: dict[str, OptionValue] = dict(before.options) if before else {}
        if facts.virtual is not None:
            options["settle_s"] = 0.0
        options |= request.options
        options["serial"] = request.serial
        if facts.serial_hash is not None:
            options["serial_hash"] = facts.serial_hash
        if facts.virtual is not None:
            options["virtual"] = facts.virtual.value
        options |= {tool.name: tool.sha256 for tool in self._tools(request, facts, options)}
        if not set(options) & set(TOOLS):
            # Requesting it by name raises an error with reason and remedy.
            self._choose(TOOL, request, facts)
        read_options(options)
        return options

    def _tools(
        self, request: PhoneRequest, facts: PhoneFacts, options: Mapping[str, OptionValue]
    ) -> list[Tool]:
        chosen = []
        for name in TOOLS:
            if name in options and name not in request.tools and facts.virtual is None:
                continue
            try:
                tool = self._choose(name, request, facts)
            except UnsupportedError:
                continue
            self.store.add(tool)
            chosen.append(tool)
        return chosen

    def _choose(self, name: str, request: PhoneRequest, facts: PhoneFacts) -> Tool:
        if facts.virtual is not None and name not in request.tools:
            path = standin_path(name)
            return Tool(name=name, path=path, sha256=file_sha256(path))
        return choose_tool(
            name,
            facts.abis,
            own_paths=request.tools,
            catalogue=load_catalogue(),
            fetch=lambda entry: fetch(entry, self.store.folder),
        )


def registration_of(facts: PhoneFacts) -> Registration:
    """The part of a probe that the device file stores; the canary has not run yet."""
    return Registration(
        registered_utc=datetime.now(UTC).isoformat(timespec="seconds"),
        facts={name: getattr(facts, name) for name in _PROBED} | {"abis": ",".join(facts.abis)},
        clusters=_clusters(facts),
    )


def _clusters(facts: PhoneFacts) -> tuple[tuple[int, ...], ...]:
    """Groups cores by clock; ignores cores without a clock (offline) if other cores report one."""
    if not facts.has_taskset:
        return ()
    clocked = tuple(cluster for cluster in facts.clusters if cluster.max_mhz is not None)
    return tuple(cluster.cores for cluster in clocked or facts.clusters)


def find_phone(devices: Iterable[DeviceFile], serial_hash: object) -> DeviceFile | None:
    """The registered phone with this hash, for any serial number; `None` for a new phone."""
    if serial_hash is None:
        return None
    return next((d for d in devices if d.options.get("serial_hash") == serial_hash), None)


def _name(
    request: PhoneRequest, facts: PhoneFacts, before: DeviceFile | None, taken: Collection[str]
) -> str:
    """The requested name, the registered name, or one from its model, numbered if it is in use."""
    had = None if before is None else before.name
    name = request.name or had
    if name is not None:
        if name in taken and name != had:
            raise UsageError(
                f"a device '{name}' already exists: {name}.yaml",
                f"choose another --name, or `fleetrank devices remove {name}` first",
            )
        return name
    words = re.sub(r"[^a-z0-9]+", "-", (facts.model or "phone").lower()).strip("-")
    stem = words[:50] or "phone"
    numbered = (f"{stem}-{number}" for number in range(2, len(taken) + 3))
    return next(name for name in (stem, *numbered) if name not in taken)
