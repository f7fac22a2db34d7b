"""One phone: its state and its faults. It has no code for sockets."""

import asyncio
import hashlib
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fleetrank.device_agents.contract.kind import VirtualMode
from phone_farm.battery import Battery
from phone_farm.faults import CUTTING, ONCE, RUNNER, Fault, leave_fault, remove_fault
from phone_farm.folder import PROPERTIES, environment, install, write, write_conditions, write_power
from phone_farm.keys import PublicKey, read_public_key
from phone_farm.paths import PhonePaths
from phone_farm.profile import Profile
from phone_farm.qemu import android_root, emulate

UPTIME_AT_START_S = 50_000.0
"""A phone that started long ago, so no caller waits for it to settle."""
SHARED_SERIAL = "0123456789ABCDEF"
"""Source: lenovo-vibe-x2 in pytorch/cpuinfo's mocks, camalot/madb issue 1."""
BOOT_S = 1.0
"""Time from the first answer after a restart until `sys.boot_completed`; minutes on real phones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhoneSpec:
    """The requested phone; `seed` decides canned times, and with `name` the serial number."""

    name: str
    profile: Profile
    mode: VirtualMode
    seed: int
    key_file: Path


class VirtualPhone:
    """The state of one phone; all methods belong to the thread of the farm's loop."""

    def __init__(self, spec: PhoneSpec, parent: Path, cut_all: Callable[[], None]) -> None:
        """Creates the phone's folder under `parent`; an existing one is kept, as on a phone."""
        self.profile = spec.profile
        self.spec = spec
        digest = hashlib.sha256(f"{spec.name}/{spec.seed}".encode()).hexdigest()
        self.serial = f"VPHONE{digest[:8].upper()}"
        self.paths = PhonePaths(parent / self.serial)
        self._cut_all = cut_all
        self._faults: dict[Fault, float | None] = {}
        self._awake = asyncio.Event()
        self._awake.set()
        self._started_s = time.perf_counter() - UPTIME_AT_START_S
        self._is_away = False
        self._is_running = False
        self._battery = Battery(since_s=UPTIME_AT_START_S)
        install(self.paths.root, spec.profile, self._properties())
        is_emulated = spec.mode is VirtualMode.EMULATED
        self._emulation = emulate(self.paths.root, android_root()) if is_emulated else {}
        write(self.paths.root, ".phone/settings/secure/android_id", digest[8:24])
        self._tell_boot()
        self._tell_conditions()

    @property
    def is_away(self) -> bool:
        """Whether it is restarting: new connections are cut at once."""
        return self._is_away

    def banner(self) -> bytes:
        """The banner that it sends in its CNXN."""
        facts = {
            "ro.product.name": self.profile.device,
            "ro.product.model": self.profile.model,
            "ro.product.device": self.profile.device,
            "features": ",".join(self.features()),
        }
        return ("device::" + "".join(f"{key}={value};" for key, value in facts.items())).encode()

    def features(self) -> tuple[str, ...]:
        """The features that it announces now."""
        if not self.has_fault(Fault.NO_EXIT_CODES):
            return self.profile.features
        return tuple(name for name in self.profile.features if name != "shell_v2")

    def read_key(self) -> PublicKey | None:
        """The key of its user. It is read each time, because adb creates it at its first start."""
        return read_public_key(self.spec.key_file)

    def environment(self) -> dict[str, str]:
        """The environment of a command on the phone, without the daemon's environment."""
        return environment(self.paths.root) | self._emulation

    def has_fault(self, fault: Fault) -> bool:
        """Whether a fault is active."""
        return fault in self._faults

    def take(self, fault: Fault) -> bool:
        """Whether a fault with 'once' was waiting; it is removed now."""
        if fault not in self._faults:
            return False
        del self._faults[fault]
        return True

    def inject(self, fault: Fault, duration_s: float | None = None) -> None:
        """Starts a fault; `Fault` explains `duration_s` for each."""
        if fault is Fault.WARMS_UP:
            self._faults[fault] = duration_s
            return
        if fault is Fault.REBOOT:
            self.begin_reboot(duration_s if duration_s is not None else 0.0)
            return
        if fault in RUNNER:
            leave_fault(self.paths.root, fault)
            return
        self._faults[fault] = duration_s
        if fault is Fault.HANG:
            self._awake.clear()
        if fault is Fault.SHARED_SERIAL:
            self._tell_serial(SHARED_SERIAL)
        self._tell_conditions()
        if fault in CUTTING:
            self._cut_all()
        if duration_s is not None and fault not in ONCE:
            asyncio.get_running_loop().call_later(duration_s, self.clear, fault)

    def clear(self, fault: Fault) -> None:
        """Ends a fault; does nothing if it is not active."""
        if not self.take(fault):
            remove_fault(self.paths.root, fault)
            return
        if fault is Fault.HANG:
            self._awake.set()
        if fault is Fault.SHARED_SERIAL:
            self._tell_serial(self.serial)
        self._tell_conditions()
        if fault in CUTTING:
            self._cut_all()

    def run_begins(self) -> None:
        """A program that measures starts."""
        self._is_running = True
        self._tell_conditions()
        self.tell_time()

    def run_ends(self) -> None:
        """It has ended, and may have warmed the phone."""
        self._is_running = False
        if Fault.WARMS_UP in self._faults:
            self.inject(Fault.WARM, self._faults[Fault.WARMS_UP])
        self._tell_conditions()
        self.tell_time()

    def begin_reboot(self, away_s: float = 0.0) -> None:
        """Disconnects, and returns with an empty `sys.boot_completed`, then 1."""
        loop = asyncio.get_running_loop()
        self._is_away = True
        write(self.paths.root, f"{PROPERTIES}/sys.boot_completed", "")
        self._cut_all()
        loop.call_later(away_s, self._come_back)

    def _come_back(self) -> None:
        self._is_away = False
        self._started_s = time.perf_counter()
        self._battery = Battery()
        (self.paths.root / ".phone/logcat").write_text("")
        self._tell_boot()
        self._tell_conditions()
        asyncio.get_running_loop().call_later(
            BOOT_S, write, self.paths.root, f"{PROPERTIES}/sys.boot_completed", "1"
        )

    async def wait_while_hung(self) -> None:
        """Returns at once, or when the phone answers again."""
        await self._awake.wait()

    def tell_time(self) -> None:
        """Updates what changes by itself, because a command reads it next."""
        now_s = time.perf_counter() - self._started_s
        write(self.paths.root, "proc/uptime", f"{now_s:.2f} {now_s:.2f}")
        if Fault.UNPLUGGED in self._faults:
            self._battery.advance(now_s, is_running=self._is_running)
            shown = frozenset(self._faults)
            write_power(self.paths.root, self.profile, shown, self._battery)

    def _tell_boot(self) -> None:
        write(self.paths.root, "proc/sys/kernel/random/boot_id", str(uuid.uuid4()))

    def _tell_serial(self, serial: str) -> None:
        for name in ("ro.serialno", "ro.boot.serialno"):
            write(self.paths.root, f"{PROPERTIES}/{name}", serial)

    def _tell_conditions(self) -> None:
        shown = frozenset(self._faults)
        write_conditions(self.paths.root, self.profile, shown, is_running=self._is_running)

    def _properties(self) -> dict[str, str]:
        profile = self.profile
        return {
            "ro.serialno": self.serial,
            "ro.boot.serialno": self.serial,
            "ro.product.manufacturer": profile.manufacturer,
            "ro.product.model": profile.model,
            "ro.product.device": profile.device,
            "ro.product.name": profile.device,
            "ro.product.cpu.abi": profile.abilist.split(",")[0],
            "ro.product.cpu.abilist": profile.abilist,
            "ro.soc.manufacturer": profile.soc_manufacturer,
            "ro.soc.model": profile.soc_model,
            "ro.board.platform": profile.platform,
            "ro.chipname": profile.chipname,
            "ro.build.version.release": profile.release,
            "ro.build.version.sdk": str(profile.sdk),
            "ro.build.version.incremental": profile.incremental,
            "ro.build.fingerprint": f"{profile.manufacturer}/{profile.device}:{profile.release}/"
            f"{profile.incremental}:user/release-keys",
            "ro.hardware.egl": profile.egl,
            "sys.boot_completed": "1",
            "ro.fleetrank.virtual": self.spec.mode.value,
            "ro.fleetrank.seed": str(self.spec.seed),
            "ro.fleetrank.slowness": str(profile.slowness),
        }
