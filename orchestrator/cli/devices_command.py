"""`fleetrank devices`: lists, adds, checks and removes devices."""

import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fleetrank.device_agents.contract.kind import (
    CanaryFile,
    Discoverer,
    Kind,
    RegistrationRequest,
    SeenDevice,
)
from fleetrank.device_agents.contract.proof import proof_line
from fleetrank.device_agents.contract.task import OptionValue
from fleetrank.device_agents.linux.cores import cpus_one_per_core
from fleetrank.device_agents.linux.processor_peaks import probe_peak
from fleetrank.device_agents.registry import KINDS, all_kinds, create_agent
from fleetrank.foundation.errors import FleetError, reworded
from fleetrank.foundation.strict_json import json_text
from fleetrank.foundation.visible_text import shortened
from fleetrank.foundation.vocabulary import Origin
from fleetrank.foundation.wording import with_flags
from fleetrank.orchestrator import quarantine
from fleetrank.orchestrator.cli.context import current, host_turn, settle_workspace
from fleetrank.orchestrator.cli.listing import AsJson, TableView, print_table, with_view
from fleetrank.orchestrator.cli.sweep_display import EXIT_FAILED_CELLS, fleetrank_command
from fleetrank.orchestrator.errors import NothingToDoError, UsageError
from fleetrank.orchestrator.workspace.device_registry import (
    DeviceFile,
    PeakSpec,
    find_device,
    load_devices,
    remove_device,
    save_device,
    update_device,
)
from fleetrank.orchestrator.workspace.registration import (
    NewDevice,
    RegistrationDesk,
    clean_device,
    kind_with_address,
)
from fleetrank.orchestrator.workspace.workspace import LOCAL_CPU
from fleetrank.orchestrator.workspace.yaml_file import load_yaml, parse_content

BROWSER, BROWSER_ADDRESS, OWN_CERTIFICATE = "browser", "127.0.0.1:8766", "self"


def _measure_peaks(device: DeviceFile, threads: Iterable[int]) -> list[dict[str, object]]:
    """Measures and stores the peaks: rows measured later with as many threads refer to them."""
    wanted = sorted(set(threads))
    cpus = _cpus_of(device, wanted[-1])
    with host_turn(f"devices check {device.name} --peaks"):
        found = [probe_peak(cpus[:count]) for count in wanted]
    known = {peak.threads: peak for peak in device.peaks}
    known |= {peak.threads: PeakSpec(**asdict(peak)) for peak in found}
    stored = tuple(known[count] for count in sorted(known))
    update_device(settle_workspace(), device.model_copy(update={"peaks": stored}))
    return [asdict(peak) for peak in found]


def _cpus_of(device: DeviceFile, threads: int) -> tuple[int, ...]:
    if not device.kind_of.is_host_cpu:
        raise UsageError(
            f"the peaks of device {device.name} of kind {device.kind} cannot be measured",
            f"measure those of a processor: `fleetrank devices check {LOCAL_CPU} --peaks`",
        )
    _require_own(device, "--peaks")
    cpus = cpus_one_per_core()
    if threads > len(cpus):
        raise UsageError(
            f"{threads} threads need more than the {len(cpus)} CPUs of this host",
            f"give at most {len(cpus)} threads",
        )
    return cpus


def _require_own(device: DeviceFile, option: str) -> None:
    """Rejects a device that is not of this host."""
    own = find_device(load_devices(settle_workspace()), LOCAL_CPU)
    if device.name != own.name:
        raise UsageError(
            f"device {device.name} is of another host",
            f"run `fleetrank devices check` with {option} on that host, and copy the device file",
        )


def _print_found(*, as_json: bool, view: TableView) -> None:
    """The devices that this host sees, such as phones of adb, and the next step for each."""
    workspace = current().found  # discovery works without one too
    devices = [] if workspace is None else list(load_devices(workspace).values())
    rows: list[dict[str, object]] = []
    advice = []
    for one in all_kinds().values():
        if one.discoverer is not None:
            discoverer, own = one.discoverer(), [d for d in devices if d.kind_of is one]
            seen = discoverer.discover([d.options for d in own])
            rows += rows_of(one, discoverer, seen, own)
            advice.append(discoverer.nothing_seen)
    if rows or as_json:
        print_table(rows, as_json, view)
    else:
        print("\n".join(advice))


def rows_of(
    kind: Kind, discoverer: Discoverer, seen: Iterable[SeenDevice], devices: Sequence[DeviceFile]
) -> list[dict[str, object]]:
    """One row per device that a host sees; a registered one is recognised by its address."""
    seen = tuple(seen)
    at = {d.name: [one for one in seen if discoverer.is_at(d.options, one)] for d in devices}
    away = ", ".join(name for name, there in at.items() if not there)
    found = (
        (one, next((name for name, there in at.items() if one in there), None)) for one in seen
    )
    return [
        {
            "serial": one.address,
            "state": one.state,
            "transport": one.transport,
            "model": one.model,
            "registered_as": name,
            "what_to_do": _what_to_do(kind, one, name, away),
        }
        for one, name in found
    ]


def _what_to_do(kind: Kind, seen: SeenDevice, name: str | None, away: str) -> str:
    if seen.remedy is not None:
        return with_flags(seen.remedy)
    if name is not None:
        return f"nothing; registered as {name}"
    more = "".join(f" --option {key}={value}" for key, value in seen.options.items())
    moved = f"  # {away} keeps its name if it is at this new address" if away else ""
    of_kind = "" if kind.name is None else f"--kind {kind.name} "
    address = f"--{kind.address_option} {shlex.quote(seen.address)}"
    return f"fleetrank devices add {of_kind}{address}{more}{moved}"


app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Name = Annotated[str, typer.Argument(help="Name of the device.")]


@app.command("list")
@with_view
def list_devices(
    *,
    found: Annotated[
        bool,
        typer.Option("--found", help="List the phones that adb finds and the next step for each."),
    ] = False,
    as_json: AsJson = False,
    view: TableView,
) -> None:
    """List registered devices with their models and states."""
    if found:
        _print_found(as_json=as_json, view=view)
        return
    devices = load_devices(settle_workspace())
    unique = {device.name: device for device in devices.values()}
    states = _states(list(unique.values()))
    rows = [
        {
            "name": device.name,
            **_model_and_state(device, states),
            "kind": device.kind,
            "host": device.host,
            "aliases": [
                key for key, other in devices.items() if other == device and key != device.name
            ],
            "options": device.options if as_json else _pairs(device.options),
            "labels": device.labels if as_json else _pairs(device.labels),
        }
        for device in unique.values()
    ]
    print_table(rows, as_json, view, ("name", "aliases", "model", "state", "kind", "host"))


def _states(devices: Sequence[DeviceFile]) -> dict[str, str]:
    """What this host sees of devices with an address, by name; it connects to none."""
    found: dict[str, str] = {}
    for kind in all_kinds().values():
        mine = [one for one in devices if one.kind_of is kind and one.host is None]
        if not mine or kind.discoverer is None:
            continue
        discoverer = kind.discoverer()
        try:
            seen = discoverer.discover([one.options for one in mine])
        except FleetError as error:
            found |= dict.fromkeys((one.name for one in mine), error.message)
            continue
        for one in mine:
            states = (it.state for it in seen if discoverer.is_at(one.options, it))
            found[one.name] = next(states, "not seen")
    return found


def _model_and_state(device: DeviceFile, states: Mapping[str, str]) -> dict[str, object]:
    """The model is that of the registration, or of this host; `None` if nothing states it."""
    facts = device.found.facts
    model = facts.get("device_model") or facts.get("model")
    if device.host is not None:
        return {"model": model, "state": f"on host {device.host}"}
    if device.kind_of.address_option is not None:
        return {"model": model, "state": states.get(device.name, "registered")}
    try:
        probed = create_agent(device.kind, device.options).probe()
    except FleetError as error:
        return {"model": model, "state": error.message}
    return {"model": probed.device_model, "state": "ready"}


@app.command()
def add(
    name: Annotated[
        str | None,
        typer.Argument(help="Name of the device (default for a phone or a board: from its model)."),
    ] = None,
    *,
    kind: Annotated[
        str | None,
        typer.Option(
            help=f"{', '.join(KINDS)}, or one of another package; for phones use --adb, for boards "
            "--ssh."
        ),
    ] = None,
    adb: Annotated[
        str | None, typer.Option(help="Serial number of a phone, from `devices list --found`.")
    ] = None,
    ssh: Annotated[
        str | None, typer.Option(help="Linux board or machine: HOST, USER@HOST or an ssh alias.")
    ] = None,
    browser: Annotated[
        bool, typer.Option("--browser", help="A browser: it opens the link that this prints.")
    ] = False,
    tls: Annotated[
        str | None,
        typer.Option(
            help="With --browser on another device: CERTIFICATE,KEY as files in PEM, or self to "
            "make them."
        ),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            help="Address of a device of a --kind of another package; with --browser, HOST:PORT "
            f"of this host, as the browser sees it (default {BROWSER_ADDRESS})."
        ),
    ] = None,
    python: Annotated[
        str | None, typer.Option(help="Python 3.10 or newer on the board (default: python3).")
    ] = None,
    setup: Annotated[
        str | None,
        typer.Option(help="Runtimes to install on the board first, such as onnx,tflite."),
    ] = None,
    named: Annotated[str | None, typer.Option("--name", help="Same as NAME.")] = None,
    host: Annotated[
        str | None, typer.Option(help="Cluster host it is attached to (default: this host).")
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="KEY=VALUE option of the device kind; may be repeated.")
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option(help="KEY=VALUE label, shown but not used; may be repeated.")
    ] = None,
    tool: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=PATH of a program for the phone, or of a folder with its libraries; may be "
            "repeated."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Register a device or re-register a phone or a board."""
    workspace, name = settle_workspace(), name or named
    labels = dict(_split(label, "--label"))
    options = {key: _value(key, text) for key, text in _split(option, "--option")}
    if browser:
        if kind not in (None, BROWSER):
            raise UsageError(f"--browser is given, but --kind is {kind}", "remove one of the two")
        kind, address = BROWSER, address or BROWSER_ADDRESS
        options |= _tls_options(tls)
    addressed = _address({"adb": adb, "ssh": ssh, "address": address})
    way = BROWSER if browser else addressed and addressed[0]
    _refuse_misplaced(way, {"tls": tls, "tool": tool, "python": python, "setup": setup})
    if addressed is not None:
        new = NewDevice(
            kind=_kind_with_address(addressed[0], kind),
            request=RegistrationRequest(
                address=addressed[1],
                programs={key: Path(path).expanduser() for key, path in _split(tool, "--tool")},
                options=options if python is None else {**options, "python": python},
                setup=tuple(filter(None, (setup or "").replace(" ", "").split(","))),
            ),
            name=name,
            labels=labels,
            host=host,
        )
        known = load_devices(workspace)
        device = _desk().add(workspace, new)
        # One that was accepted stays so when it is registered again.
        is_kept_out = device.name not in known and quarantine.keep_out(workspace, device)
        _print_file(workspace.devices / f"{device.name}.yaml", as_json)
        if is_kept_out and not as_json:
            print(f"its rows count after: {fleetrank_command('devices', 'accept', device.name)}")
        return
    if name is None or kind is None:
        raise UsageError(
            "NAME and --kind are required; for a phone, --adb SERIAL, for a board, --ssh HOST",
            "`fleetrank devices list --found` lists the phones",
        )
    content = {"name": name, "kind": kind, "host": host, "options": options, "labels": labels}
    device = parse_content(f"device '{name}'", DeviceFile, content)
    # The agent rejects an unknown kind or option before the file is written.
    agent = create_agent(device.kind, device.options)
    if device.kind_of.is_probed_when_added and device.host is None:
        agent.probe()  # detects a missing driver now instead of during a sweep
    _print_file(save_device(workspace, device), as_json)
    if device.traits.origin is Origin.SIMULATED and device.host is None and not as_json:
        _print_trial(device)


@app.command()
def accept(name: Name, as_json: AsJson = False) -> None:
    """Count the rows of a browser, which measures itself.

    Until then they are stored, and every table says that they are left out.
    """
    workspace = settle_workspace()
    device = find_device(load_devices(workspace), name)
    is_new = quarantine.accept(workspace, device)
    if as_json:
        print(json_text({"name": device.name, "is_accepted": True, "is_new": is_new}, indent=2))
    else:
        print(f"the rows of {device.name} count now" if is_new else f"{device.name} counts already")


_TRIED = ("squeezenet1_1", "mobilenet_v2")
"""Two small models of nearly the same latency, whose order can differ between devices."""


def _print_trial(device: DeviceFile) -> None:
    """Two commands to paste: they measure a device beside this host, and compare both."""
    devices = f"{LOCAL_CPU},{device.name}"
    print("to try it:")
    print(f"  {fleetrank_command('run', *_TRIED, '--devices', devices)}")
    print(f"  {fleetrank_command('faster', *_TRIED, '--include-simulated')}")


def _print_file(path: Path, as_json: bool) -> None:
    print(json_text({"name": path.stem, "file": str(path)}, indent=2) if as_json else path)


@app.command()
def check(
    name: Name = LOCAL_CPU,
    *,
    peaks: Annotated[
        bool,
        typer.Option(
            "--peaks",
            help="Measure and store the peak FLOP/s and bytes/s of this host's CPU: MFU and MBU of "
            "rows measured later are shares of them.",
        ),
    ] = False,
    threads: Annotated[
        list[int] | None,
        typer.Option(
            min=1, help="With --peaks: number of threads, one on each core; repeatable (default 1)."
        ),
    ] = None,
    proof: Annotated[
        bool,
        typer.Option(
            "--proof",
            help="Measure and store whether fleetrank's figures are right on it: five pairs of "
            "runs by the plain way and by fleetrank's. Exit code 3: they are not.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print the properties of a device, and what has changed.

    It connects to the device. A registered one is tried out again, as when it was added.
    """
    device = find_device(load_devices(settle_workspace()), name)
    if peaks and proof:
        raise UsageError("--peaks and --proof are both given", "measure one, then the other")
    if peaks:
        print_table(_measure_peaks(device, threads or [1]), as_json)
        return
    if proof:
        _prove(device, as_json=as_json)
        return
    agent = create_agent(device.kind, device.options)
    with reworded(NothingToDoError, FleetError), device.reserved():
        facts = asdict(agent.probe())
    row = {"name": device.name, "kind": device.kind, **facts, "extra": dict(facts["extra"])}
    if not as_json:
        # At once: a registered device is then tried out again, which takes longer.
        print_table([{"fact": key, "value": value} for key, value in row.items()], as_json=False)
    is_registered = device.registration is not None
    changes = [asdict(change) for change in _desk().check(device)] if is_registered else []
    if as_json:
        print(json_text({**row, "changes": changes}, indent=2))
    elif changes:
        print("\nchanged since it was registered:")
        print_table(changes, as_json=False)
    elif is_registered:
        print(f"\n{device.name} has not changed since it was registered")


def _prove(device: DeviceFile, *, as_json: bool) -> None:
    """Prints a proof; exit code 3 if it has a finding, as of a sweep with failed cells."""
    if device.host is not None or device.kind_of.is_host_cpu:
        _require_own(device, "--proof")
    found = _desk().prove(settle_workspace(), device)
    line = proof_line(found)
    if as_json:
        print(json_text({"name": device.name, **asdict(found), "line": line}, indent=2))
    else:
        print("\n".join((line, *(f"finding: {one}" for one in found.findings))))
    if found.findings:
        raise typer.Exit(EXIT_FAILED_CELLS)


@app.command()
def show(name: Name = LOCAL_CPU, as_json: AsJson = False) -> None:
    """Print options, registration and proof of a device, as stored.

    It does not connect to the device.
    """
    device = find_device(load_devices(settle_workspace()), name)
    line = None if device.proof is None else proof_line(device.proof)
    content = {**device.model_dump(mode="json"), "proof_line": line}
    if as_json:
        print(json_text(content, indent=2))
        return
    content |= {**asdict(device.found), **device.found.facts, "facts": None, "proof": None}
    rows = [{"fact": key, "value": value} for key, value in content.items() if value]
    print_table(rows, as_json=False)


@app.command()
def remove(name: Name, as_json: AsJson = False) -> None:
    """Delete a device's file, and fleetrank's folder on the device.

    Its measurements are kept. A file that cannot be read is deleted too.
    """
    device = remove_device(settle_workspace(), name)
    if device is None:
        print(f"the file of {name} could not be read and was removed", file=sys.stderr)
    elif device.registration is not None:
        try:
            clean_device(device)
        except FleetError as error:
            print(f"{error.message}\n  -> {with_flags(error.remedy)}", file=sys.stderr)
    if as_json:
        print(json_text({"name": name, "is_removed": True}, indent=2))


_NOUNS = {"adb": "phones", "ssh": "boards"}
_Address = tuple[str, str] | None
"""The option that a device is registered by, and its address."""


def _address(options: Mapping[str, str | None]) -> _Address:
    given = [(name, one) for name, one in options.items() if one is not None]
    if len(given) > 1:
        both = " and ".join(f"--{name}" for name, _ in given)
        raise UsageError(f"{both} are both given", "register one device at a time")
    return given[0] if given else None


_OF_BOARDS = ("ssh", "boards", "give the board with --ssh HOST")
_ONLY = {
    "tls": (BROWSER, "browsers", "give --browser too"),
    "tool": ("adb", "phones", "give the phone with --adb SERIAL"),
    "python": _OF_BOARDS,
    "setup": _OF_BOARDS,
}
"""Options of devices that are registered in one way, these devices, and what to do."""


def _refuse_misplaced(way: str | None, given: Mapping[str, object]) -> None:
    """Rejects options of a device that is registered in another way."""
    for name, value in given.items():
        of, devices, remedy = _ONLY[name]
        if value not in (None, []) and way != of:
            raise UsageError(f"--{name} is only for {devices}", remedy)


def _tls_options(tls: str | None) -> dict[str, OptionValue]:
    """Options of a browser; relative paths are those of this folder."""
    if tls is None or tls == OWN_CERTIFICATE:
        return {} if tls is None else {"certificate": tls}
    certificate, comma, key = tls.partition(",")
    if not (certificate and comma and key):
        raise UsageError(
            f"--tls '{shortened(tls)}' is not two files", "give CERTIFICATE,KEY or self"
        )
    paths = (Path(one).expanduser().absolute() for one in (certificate, key))
    return dict(zip(("certificate", "private_key"), map(str, paths), strict=True))


def _kind_with_address(option: str, kind: str | None) -> str:
    """The kind whose devices this option registers, if it is the requested one."""
    known = kind_with_address(option) if option in _NOUNS else kind
    if known is None:
        raise UsageError(f"--{option} is of no kind of device", "give --kind too")
    if kind not in (None, known):
        raise UsageError(
            f"--{option} is for {_NOUNS[option]}, but --kind is {kind}",
            "remove one of the two options",
        )
    return known


def _desk() -> RegistrationDesk:
    workspace = settle_workspace()

    def canary() -> CanaryFile:
        from fleetrank.orchestrator.export import canary_artifact

        artifact = canary_artifact(workspace)
        return CanaryFile(path=artifact.path, sha256=artifact.sha256)

    return RegistrationDesk(canary=canary, say=lambda line: print(line, file=sys.stderr))


def _split(pairs: Sequence[str] | None, option: str) -> list[tuple[str, str]]:
    split = [text.partition("=") for text in pairs or ()]
    for key, equals, _ in split:
        if not (key and equals):
            raise UsageError(
                f"'{key}' after {option} is not KEY=VALUE", f"write for example {option} tier=gpu"
            )
    return [(key, value) for key, _, value in split]


def _value(key: str, text: str) -> OptionValue:
    try:
        value = load_yaml(text, f"--option {key}")
    except UsageError:
        value = None
    if not isinstance(value, bool | int | float | str):
        raise UsageError(
            f"--option {shortened(key)}: '{shortened(text)}' is not a valid value",
            "give a number, a word, true or false, as in YAML",
        )
    return value


def _pairs(values: object) -> list[str]:
    return [f"{key}={value}" for key, value in values.items()] if isinstance(values, dict) else []
