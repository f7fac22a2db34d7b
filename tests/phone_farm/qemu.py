"""A phone on an emulated ARM processor, with Android's own C library."""

import os
import shutil
from pathlib import Path

from fleetrank.device_agents.errors import PermanentError
from phone_farm.folder import BIN, link

ROOT_VARIABLE = "FLEETRANK_ANDROID_ROOT"
_EMULATORS = ("qemu-aarch64", "qemu-arm")
_HOOK = "elf_exec.so"


def android_root() -> Path:
    """The folder with Android's C library, which `make android-root` builds.

    Raises:
        PermanentError: none is named, something in it is missing, or qemu-user is not installed.
    """
    named = os.environ.get(ROOT_VARIABLE)
    if not named:
        raise PermanentError(
            f"{ROOT_VARIABLE} does not name a folder with Android's C library",
            f"`make android-root` builds one; then `export {ROOT_VARIABLE}=build/android_root`",
        )
    root = Path(named).resolve()
    missing = [name for name in ("system/bin/linker64", _HOOK) if not (root / name).is_file()]
    missing += [name for name in _EMULATORS if shutil.which(name) is None]
    if missing:
        raise PermanentError(
            f"emulated phones with {root} lack {', '.join(missing)}",
            "build the folder again: `make android-root`; Debian, Ubuntu: apt install qemu-user",
        )
    return root


def emulate(root: Path, android: Path) -> dict[str, str]:
    """Links Android's files and the emulators into the phone's folder.

    Returns:
        What the environment of its commands needs besides: a program of ARM that is started runs
        under qemu, which looks up absolute paths in the phone's folder first.
    """
    for folder in ("bin", "lib", "lib64", "usr"):
        (root / "system" / folder).mkdir(parents=True, exist_ok=True)
        for file in (android / "system" / folder).iterdir():
            link(root / "system" / folder / file.name, file)
    for name in _EMULATORS:
        link(root / BIN / name, Path(str(shutil.which(name))))
    cpu = os.environ.get("QEMU_CPU")
    return {
        "LD_PRELOAD": str(android / _HOOK),
        "QEMU_LD_PREFIX": str(root),
        "QEMU_UNSET_ENV": "LD_PRELOAD",
        **({"QEMU_CPU": cpu} if cpu else {}),
    }
