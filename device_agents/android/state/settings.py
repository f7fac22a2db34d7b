"""Keeps a phone awake and quiet during a measurement, then restores its settings.

The previous settings are written on the phone before any change. The next caller can restore them
after a crash of this process, of the host, or of the phone.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fleetrank.device_agents.android.adb_text import shown
from fleetrank.device_agents.android.phone import Phone
from fleetrank.device_agents.android.state.waits import when_back
from fleetrank.device_agents.errors import PermanentError
from fleetrank.foundation.errors import FleetError

FOLDER = "/data/local/tmp/fleetrank"
"""Our only folder on a phone; the shell user may execute programs below /data/local/tmp."""
RECORD = f"{FOLDER}/restore.txt"
TIMEOUT_S = 20.0
"""Each `settings` call starts a Java process, half a second on a fast phone. The cleanup waits no
longer than this for a phone that does not respond."""
_KEYS = "stay_on_while_plugged_in heads_up_notifications_enabled"
"""The setting of `svc power stayon`, and whether notifications appear over the screen."""
_SAVE = f"""
mkdir -p "$1" || exit 1
for key in {_KEYS}; do
  value=$(settings get global "$key") || exit 1
  printf 'global %s %s\\n' "$key" "$value"
done > "$2.new" && mv -f "$2.new" "$2"
"""
_CHANGE = """
svc power stayon true; awake=$?
settings put global heads_up_notifications_enabled 0 && [ "$awake" = 0 ]
"""
_RESTORE = f"""
[ -f "$1" ] || exit 0
while read -r namespace key value; do
  case " {_KEYS} " in *" $key "*) ;; *) continue ;; esac
  case "$value" in
    null | '') settings delete global "$key" ;;
    *) settings put global "$key" "$value" ;;
  esac </dev/null >/dev/null || [ "$(settings get global "$key" </dev/null)" = "$value" ] || exit 1
done < "$1"
rm -f -- "$1"
"""
"""Only our own keys are restored: every program of the shell user can write the record. An unset
value reads `null`; it is deleted, because the string would be a value. A phone that denied the
change denies the restoring, too, and has its value still."""
_REMEDY = (
    "allow USB debugging to change settings in the developer options: 'USB debugging (Security "
    "settings)' (Xiaomi, Redmi, POCO) or 'Disable permission monitoring' (OPPO, realme, OnePlus)"
)
_logger = logging.getLogger(__name__)


@contextmanager
def settings_for_measuring(
    phone: Phone, require_phone: Callable[[], None] = lambda: None
) -> Iterator[bool]:
    """Restores settings after a crash, then sets stay-awake and no heads-up; reverts at the end.

    Gives whether the phone applied both. Several makers deny it by default; such a phone can be
    measured, but its screen may go off and notifications may appear.

    If the phone is lost at the end and stays away, it keeps its record, and the next caller
    restores it. So it does if `require_phone` raises, because another host uses the phone.

    Raises:
        TransientError: the connection was lost before the block.
    """

    def restore(phone: Phone) -> None:
        require_phone()
        restore_settings(phone)

    # A record that cannot be restored must not be replaced: it has the user's values.
    refusal = _refusal(phone, _RESTORE, RECORD) or _refusal(phone, _SAVE, FOLDER, RECORD)
    try:
        refusal = refusal or _refusal(phone, _CHANGE)
        if refusal is not None:
            _logger.warning("%s; measured all the same: %s", _denied(phone, refusal), _REMEDY)
        yield refusal is None
    finally:
        try:
            when_back(phone, restore)
        except FleetError as error:
            _logger.warning("settings of phone %r not restored yet: %s", phone.serial, error)


def restore_settings(phone: Phone) -> None:
    """Restores the settings in the phone's record and removes the record, if one exists.

    Raises the same errors as `Phone.shell`, and `PermanentError` if the phone rejects it.
    """
    refusal = _refusal(phone, _RESTORE, RECORD)
    if refusal is not None:
        raise PermanentError(_denied(phone, refusal), _REMEDY)


def _refusal(phone: Phone, script: str, *arguments: str) -> str | None:
    """Runs a script and returns what the phone wrote if it failed; `None` if it succeeded."""
    result = phone.shell(script, *arguments, timeout_s=TIMEOUT_S)
    if result.exit_code == 0:
        return None
    return shown((result.stderr or result.stdout)[:200])


def _denied(phone: Phone, refusal: str) -> str:
    return f"phone {phone.serial!r} does not allow changes to its settings: {refusal}"
