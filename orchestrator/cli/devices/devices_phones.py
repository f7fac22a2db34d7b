"""`fleetrank devices add --adb`, `check` and `remove` of phones."""

import shlex
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from fleetrank.device_agents.android.adb.adb_server import AdbServer, find_adb
from fleetrank.device_agents.android.agent import AndroidAgent
from fleetrank.device_agents.android.options import TOOLS
from fleetrank.device_agents.android.programs.tool_cache import ToolCache
from fleetrank.device_agents.android.programs.tool_store import ToolStore
from fleetrank.device_agents.android.state.settings import FOLDER, restore_settings
from fleetrank.foundation.errors import FleetError
from fleetrank.orchestrator.errors import NothingToDoError, UsageError
from fleetrank.orchestrator.export.export_stage import canary_artifact
from fleetrank.orchestrator.phones.phone_check import Change, changes_between
from fleetrank.orchestrator.phones.phone_registration import (
    PhoneRequest,
    Registrar,
    find_phone,
)
from fleetrank.orchestrator.workspace.device_registry import (
    PHONE,
    DeviceFile,
    load_devices,
    remove_device,
    save_device,
    update_device,
)
from fleetrank.orchestrator.workspace.workspace import Workspace


def add_phone(workspace: Workspace, request: PhoneRequest) -> DeviceFile:
    """Registers or re-registers a phone and writes its file.

    Raises:
        UsageError: a program that no runner uses, or a name that another device has.
        NothingToDoError: the phone cannot be reached or used.
    """
    for name in request.tools:
        if name not in TOOLS:
            raise UsageError(f"--tool {name}: not used by any runner", f"use {', '.join(TOOLS)}")
    known = {device.name: device for device in load_devices(workspace).values()}
    device = _registrar(workspace, {}).register(request, known.values())
    before = find_phone(known.values(), device.options.get("serial_hash"))
    if before is None:
        save_device(workspace, device)
    elif device.name == before.name:
        update_device(workspace, device)
    else:
        save_device(workspace, device)
        remove_device(workspace, before.name)
    return device


def check_phone(workspace: Workspace, device: DeviceFile) -> tuple[Change, ...]:
    """Repeats a phone's registration without writing a file; returns what has changed.

    Raises:
        NothingToDoError: the phone is unreachable or unusable, or it is a different phone.
    """
    try:
        AndroidAgent(device.options).probe()
    except FleetError as error:
        raise NothingToDoError(error.message, error.remedy) from error
    request = PhoneRequest(
        serial=str(device.options["serial"]), name=device.name, labels={}, tools={}
    )
    after = _registrar(workspace, device.options).register(request, [device])
    return changes_between(device, after)


def clean_phone(device: DeviceFile) -> None:
    """Deletes our folder on a phone; warns the user if the phone is unreachable."""
    if device.kind != PHONE:
        return
    try:
        agent = AndroidAgent(device.options)
        phone = agent.phone()
        with agent.held(phone):
            restore_settings(phone)  # the folder also holds the settings saved before a crash
            ToolCache(phone).clear()
    except FleetError as error:
        serial = shlex.quote(str(device.options.get("serial")))
        print(f"its folder on the phone was not deleted: {error.message}", file=sys.stderr)
        print(f"  -> adb -s {serial} shell rm -r {FOLDER}", file=sys.stderr)


def change_rows(changes: tuple[Change, ...]) -> list[dict[str, object]]:
    """One listing row per change."""
    return [asdict(change) for change in changes]


def _registrar(workspace: Workspace, options: Mapping[str, object]) -> Registrar:
    adb, port = options.get("adb"), options.get("adb_port")
    return Registrar(
        server=AdbServer(
            find_adb(adb) if isinstance(adb, str) else None,
            port if isinstance(port, int) else None,
        ),
        store=ToolStore(),
        canary=lambda: canary_artifact(workspace),
        tell=lambda line: print(line, file=sys.stderr),
    )


def tool_paths(pairs: list[tuple[str, str]]) -> dict[str, Path]:
    """Parses `--tool NAME=PATH` into paths."""
    return {name: Path(path).expanduser() for name, path in pairs}
