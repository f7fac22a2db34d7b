"""Who has a phone: a lease on this host without a deadline, and a lock on the phone that lapses."""

import getpass
import os
import re
import secrets
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

from fleetrank.device_agents.android.adb_text import shown
from fleetrank.device_agents.android.phone import Phone
from fleetrank.device_agents.errors import HOST_PATIENCE_S, NotFitError, TransientError
from fleetrank.device_agents.hold import Held, LostHoldError, held
from fleetrank.foundation.lease import (
    LONGEST_WAIT_S,
    holder,
    is_locked,
    never_give_up,
    open_lease,
    runtime_folder,
    sign,
    wait_for_lock,
)

_TIMEOUT_S = 20.0


@contextmanager
def phone_lease(
    name: str,
    *,
    purpose: str = "a measurement on it",
    folder: Path | None = None,
    patience_s: float = HOST_PATIENCE_S,
) -> Iterator[None]:
    """Locks a phone on this host; the system releases the lock if the process dies.

    Args:
        name: of the phone (`Identity.lease_name`, or the same of `PhoneFacts`).
        purpose: who holds it and why; shown to processes that find it in use.
        folder: folder of the leases; the user's own folder if not given.
        patience_s: how long to wait for another holder.

    Raises:
        NotFitError: another process, or another thread of this one, holds it.
        PermanentError: no safe folder for the lease exists.
    """
    until_s = monotonic() + patience_s
    with open_lease(_lease_path(name, folder)) as lease:
        if not wait_for_lock(lease, lambda: monotonic() >= until_s):
            raise _in_use(holder(lease))
        sign(lease, purpose)
        yield


def _lease_path(name: str, folder: Path | None = None) -> Path:
    return (folder or runtime_folder()) / f"phone-{name[:32]}.lease"


def require_unlocked(registered: Sequence[str | None]) -> None:
    """Raises `NotFitError` if this host uses the phone; does not contact it.

    It is not sure for a phone whose registered hashes are incomplete.
    """
    name = registered[-1] or registered[-2]
    if name is not None and is_locked(path := _lease_path(name)):
        with open_lease(path) as lease:
            raise _in_use(holder(lease))


# The lock on the phone itself, for conductors on different hosts that reach it.
#
# A conductor first writes its own file beside those of others, and has the lock only if it then
# finds no other file that is valid: of two that write at once, at most one goes on. A file is valid
# until its deadline by the phone's clock, which counts since the phone's start and which no user
# can set. Each file is complete when it appears under its name.

LOCK_S = 120
"""Seconds from the last renewal: longer than most breaks of a network, and no longer than a person
waits after a crash. A lock may be for at most an hour, as the script checks."""
WANT_S = 20
"""A conductor that waits asks more often; after this time without a question its turn lapses."""
_ASK_AGAIN_S = 5.0
_LOCK_FOLDER = "/data/local/tmp/fleetrank/lock"
_LOCK_SCRIPT = """
dir=$1 me=$2 mode=$3 for_s=$4 who=$5
read -r up _ < /proc/uptime && now=${up%.*} || exit 6
read -r boot < /proc/sys/kernel/random/boot_id
other() {
  for file in "$dir/$1"/*; do
    [ -f "$file" ] && [ "${file##*/}" != "$me" ] || continue
    until= on= name=
    read -r until on name < "$file"
    case $until in '' | *[!0-9]* | ??????????*) until=0 ;; esac
    if [ "$on" = "$boot" ] && [ "$until" -gt "$now" ] && [ "$until" -le $((now + 3600)) ]; then
      printf '%s %s\\n' $((until - now)) "$name"
      return 0
    fi
    rm -f -- "$file"
  done
  return 1
}
write() {
  mkdir -p -- "$dir/$1" && printf '%s %s %s\\n' $((now + $2)) "$boot" "$who" > "$dir/$1.$me" &&
    mv -f -- "$dir/$1.$me" "$dir/$1/$me" || exit 6
}
case $mode in
  keep | free) [ -f "$dir/held/$me" ] || [ "$mode" = free -a ! -d "$dir" ] || exit 4 ;;
  *)
    if other held; then write want WANT_S; exit 3; fi
    last=
    [ -f "$dir/last" ] && read -r last < "$dir/last"
    if [ "$last" = "$me" ] && other want; then write want WANT_S; exit 5; fi ;;
esac
case $mode in
  look) exit 0 ;;
  free) rm -f -- "$dir/held/$me"; exit 0 ;;
esac
write held "$for_s"
if other held; then rm -f -- "$dir/held/$me"; exit 3; fi
rm -f -- "$dir/want/$me"
printf '%s\\n' "$me" > "$dir/last"
exit 0
""".replace("WANT_S", str(WANT_S))
"""The conductor that had the lock last lets others that wait go first, so they take turns. Nothing
is lost if the whole folder was deleted, as `devices remove` does while it has the lock."""
_REFUSED, _LOST, _NOT_MY_TURN = 3, 4, 5


@dataclass(frozen=True, slots=True, kw_only=True)
class PhoneLock:
    """The lock of one phone, as a `Hold`.

    Attributes:
        me: names this conductor: all processes of one user on one host.
        who: what others are shown.
        lapses_s: after the last renewal.
    """

    phone: Phone
    me: str
    who: str
    lapses_s: int = LOCK_S

    @property
    def every_s(self) -> float:
        """Two renewals may fail."""
        return self.lapses_s / 3

    def look(self) -> None:
        """Raises `NotFitError` if another has it. Cheap, so it disturbs no measurement."""
        self._run("look")

    def take(self) -> None:
        """As of `Hold`."""
        self._run("take")

    def keep(self) -> None:
        """As of `Hold`."""
        self._run("keep")

    def release(self) -> None:
        """As of `Hold`."""
        self._run("free")

    def _run(self, mode: str) -> None:
        arguments = (_LOCK_FOLDER, self.me, mode, str(self.lapses_s), self.who)
        ended = self.phone.shell(_LOCK_SCRIPT, *arguments, timeout_s=_TIMEOUT_S)
        if ended.exit_code == 0:
            return
        seconds, _, who = ended.stdout.strip().partition(" ")
        if ended.exit_code == _REFUSED:
            raise _in_use(f"{shown(who) or 'another host'}; its lock lapses in {shown(seconds)} s")
        if ended.exit_code == _NOT_MY_TURN:
            raise _in_use(f"it is the turn of {shown(who)}, for {shown(seconds)} s")
        if ended.exit_code == _LOST:
            raise LostHoldError(
                f"the lock on phone {self.phone.serial!r} lapsed and was taken, or was deleted",
                "it will be retried; check the network if this happens often",
            )
        raise TransientError(
            f"the lock on phone {self.phone.serial!r} cannot be written: "
            f"{shown(ended.stderr or ended.stdout)}",
            "check that /data/local/tmp on the phone is writable and has space",
        )


def phone_lock(phone: Phone, *, lapses_s: int = LOCK_S) -> PhoneLock:
    """The lock of a phone for this user on this host."""
    folder = runtime_folder()
    with open_lease(folder / "conductor") as file:
        wait_for_lock(file, never_give_up)
        me = file.read()
        if not _CONDUCTOR.fullmatch(me):
            me = secrets.token_hex(16)
            os.ftruncate(file.fileno(), 0)
            os.pwrite(file.fileno(), me.encode(), 0)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    who = f"{_user_name()}@{socket.gethostname()} (process {os.getpid()}, since {now})"
    return PhoneLock(phone=phone, me=me, who=who, lapses_s=lapses_s)


_CONDUCTOR = re.compile(r"[0-9a-f]{32}", re.ASCII)


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"  # a container without a list of users


@contextmanager
def phone_held(lock: PhoneLock, name: str) -> Iterator[Held]:
    """Holds a phone for the block: on this host, and on the phone for all other hosts.

    Raises:
        NotFitError: in use.
        LostHoldError: another took it meanwhile, because this host did not renew its lock.
    """
    with phone_lease(name), held(lock) as taken:
        yield taken


def _in_use(used_by: str) -> NotFitError:
    return NotFitError(
        f"the phone is in use: {used_by}",
        "wait until it is released; only one process may measure on a phone",
        _ASK_AGAIN_S,
        LONGEST_WAIT_S,
    )
