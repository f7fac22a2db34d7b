"""Keeps a phone awake and quiet while it is measured on, and puts everything back.

What was set before is written on the phone before anything changes, so that whoever comes next
restores it after a crash of this process, of the host, or of the phone.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from fleetrank.device_agents.android.adb.phone import Phone
from fleetrank.device_agents.errors import AgentError, PermanentError

FOLDER = "/data/local/tmp/fleetrank"
"""The one folder of ours on a phone; the shell user may execute below /data/local/tmp."""
RECORD = f"{FOLDER}/restore.txt"
TIMEOUT_S = 20.0
"""Each `settings` starts a Java process, half a second on a fast phone; a phone that hangs is
not waited for longer than that on the way out."""

_KEYS = "stay_on_while_plugged_in heads_up_notifications_enabled"
"""What `svc power stayon` sets, and whether notifications slide over the screen."""
_SAVE = f"""
mkdir -p "$1" || exit 1
for key in {_KEYS}; do
  value=$(settings get global "$key") || exit 1
  printf 'global %s %s\\n' "$key" "$value"
done > "$2.new" && mv -f "$2.new" "$2"
"""
_CHANGE = "svc power stayon true && settings put global heads_up_notifications_enabled 0"
_RESTORE = f"""
[ -f "$1" ] || exit 0
while read -r namespace key value; do
  case " {_KEYS} " in *" $key "*) ;; *) continue ;; esac
  case "$value" in
    null | '') settings delete global "$key" ;;
    *) settings put global "$key" "$value" ;;
  esac </dev/null >/dev/null || exit 1
done < "$1"
rm -f -- "$1"
"""
"""Only our own keys are set back: the record lies where every program of the shell user can
write. An unset value reads `null` and is deleted again, since the string would be a value."""

_logger = logging.getLogger(__name__)


@contextmanager
def settings_for_measuring(phone: Phone) -> Iterator[None]:
    """Restores what a crash left behind, then sets stay-awake and no heads-up; undone at the end.

    A phone that is gone at the end keeps its record, and the next caller restores it.

    Raises:
        TransientError: lost on the way in.
        PermanentError: the phone does not let its settings be changed.
    """
    restore_settings(phone)
    _do(phone, _SAVE, FOLDER, RECORD)
    try:
        _do(phone, _CHANGE)
        yield
    finally:
        try:
            restore_settings(phone)
        except AgentError as error:
            _logger.warning("settings of phone %r not restored yet: %s", phone.serial, error)


def restore_settings(phone: Phone) -> None:
    """Sets back what a record on the phone names, and removes it; nothing without a record.

    Raises what `Phone.shell` raises, and `PermanentError` when the phone refuses.
    """
    _do(phone, _RESTORE, RECORD)


def _do(phone: Phone, script: str, *arguments: str) -> None:
    result = phone.shell(script, *arguments, timeout_s=TIMEOUT_S)
    if result.exit_code != 0:
        raise PermanentError(
            f"phone {phone.serial!r} does not let its settings be changed: "
            f"{(result.stderr or result.stdout).strip()[:200]}",
            "allow USB debugging to change them ('USB debugging (Security settings)' on some)",
        )
