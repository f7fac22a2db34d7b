"""`fleetrank devices`: lists, adds, checks and removes devices."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fleetrank.device_agents.contract.registration import CanaryFile, RegistrationRequest
from fleetrank.device_agents.contract.task import OptionValue
from fleetrank.device_agents.registry import KINDS, create_agent
from fleetrank.foundation.errors import FleetError
from fleetrank.foundation.visible_text import shortened
from fleetrank.orchestrator.cli.context import current
from fleetrank.orchestrator.cli.devices.devices_phones import discover, virtual
from fleetrank.orchestrator.cli.output.listing import AsJson, print_table
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.workspace.device_registry import (
    DeviceFile,
    find_device,
    load_devices,
    remove_device,
    save_device,
)
from fleetrank.orchestrator.workspace.registration import (
    NewDevice,
    RegistrationDesk,
    clean_device,
    kind_with_address,
)
from fleetrank.orchestrator.workspace.yaml_file import load_yaml, parse_content

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Name = Annotated[str, typer.Argument(help="Name of the device.")]

app.command()(discover)
app.command()(virtual)


@app.command("list")
def list_devices(as_json: AsJson = False) -> None:
    """List registered devices and their aliases."""
    devices = load_devices(current().workspace)
    unique = {device.name: device for device in devices.values()}
    rows = [
        {
            "name": device.name,
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
    print_table(rows, as_json)


@app.command()
def show(name: Name, as_json: AsJson = False) -> None:
    """Connect to a device and print its properties."""
    device = find_device(load_devices(current().workspace), name)
    facts = asdict(create_agent(device.kind, device.options).probe())
    facts["extra"] = dict(facts["extra"])
    row: dict[str, object] = {"name": device.name, "kind": device.kind, **facts}
    if as_json:
        print_table([row], as_json=True)
    else:
        print_table([{"fact": key, "value": value} for key, value in row.items()], as_json=False)


@app.command()
def add(
    name: Annotated[
        str | None, typer.Argument(help="Name of the device (default for a phone: from its model).")
    ] = None,
    *,
    kind: Annotated[
        str | None, typer.Option(help=f"{', '.join(KINDS)}; for phones use --adb.")
    ] = None,
    adb: Annotated[
        str | None, typer.Option(help="Serial number of a phone, from `devices discover`.")
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
        typer.Option(help="NAME=PATH of a program to run on the phone; may be repeated."),
    ] = None,
) -> None:
    """Register a device or re-register a phone."""
    workspace, name = current().workspace, name or named
    labels = dict(_split(label, "--label"))
    options = {key: _value(key, text) for key, text in _split(option, "--option")}
    if adb is not None:
        new = NewDevice(
            kind=_kind_with_address("adb", kind),
            request=RegistrationRequest(
                address=adb,
                programs={key: Path(path).expanduser() for key, path in _split(tool, "--tool")},
                options=options,
            ),
            name=name,
            labels=labels,
            host=host,
        )
        print(workspace.devices / f"{_desk().add(workspace, new).name}.yaml")
        return
    if tool:
        raise UsageError("--tool is only for phones", "give the phone with --adb SERIAL")
    if name is None or kind is None:
        raise UsageError(
            "NAME and --kind are required; for a phone, --adb SERIAL is required",
            "`fleetrank devices discover` lists the phones",
        )
    content = {"name": name, "kind": kind, "host": host, "options": options, "labels": labels}
    device = parse_content(f"device '{name}'", DeviceFile, content)
    # The agent rejects an unknown kind or option before the file is written.
    agent = create_agent(device.kind, device.options)
    if device.kind_of.is_probed_when_added and device.host is None:
        agent.probe()  # detects a missing driver now instead of during a sweep
    print(save_device(workspace, device))


@app.command()
def check(name: Name, as_json: AsJson = False) -> None:
    """Show what has changed since a device was registered."""
    device = find_device(load_devices(current().workspace), name)
    if device.registration is None:
        create_agent(device.kind, device.options).probe()
        rows: list[dict[str, object]] = []
    else:
        rows = [asdict(change) for change in _desk().check(device)]
    if rows or as_json:
        print_table(rows, as_json)
    else:
        print(f"{device.name} responds; nothing has changed")


@app.command()
def remove(name: Name) -> None:
    """Delete a device's file and, on a phone, fleetrank's folder.

    Its measurements are kept. A file that cannot be read is deleted too.
    """
    device = remove_device(current().workspace, name)
    if device is None:
        print(f"the file of {name} could not be read and was removed", file=sys.stderr)
    elif device.registration is not None:
        try:
            clean_device(device)
        except FleetError as error:
            print(f"{error.message}\n  -> {error.remedy}", file=sys.stderr)


def _kind_with_address(option: str, kind: str | None) -> str:
    """The kind whose devices this option registers, if it is the requested one."""
    known = kind_with_address(option)
    if kind not in (None, known):
        raise UsageError(
            f"--{option} is for phones, but --kind is {kind}", "remove one of the two options"
        )
    return known


def _desk() -> RegistrationDesk:
    workspace = current().workspace

    def canary() -> CanaryFile:
        from fleetrank.orchestrator.export.export_stage import canary_artifact

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
