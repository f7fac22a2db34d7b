"""One script, one call, many answers: their texts kept apart by a mark that none of them holds."""

import secrets
from collections.abc import Mapping

from fleetrank.device_agents.android.adb.phone import Phone
from fleetrank.device_agents.contract.agent import StopRequested, never_stop

PROLOGUE = """
section() { printf '\\n%s %s\\n' "$mark" "$1"; }
mark=$1
"""
"""What a script with sections starts with; `section NAME` begins the next."""


def read_sections(
    phone: Phone,
    script: str,
    *,
    timeout_s: float,
    stop_requested: StopRequested = never_stop,
) -> Mapping[str, str]:
    """Runs a script of ours and returns what it wrote in each of its sections, by name.

    A command on the phone that fails leaves its section empty: what a phone does not tell is not
    known, and no error. Raises what `Phone.shell` raises.
    """
    mark = secrets.token_hex(8)
    result = phone.shell(
        PROLOGUE + script, mark, timeout_s=timeout_s, stop_requested=stop_requested
    )
    return split_sections(result.stdout, mark)


def split_sections(text: str, mark: str) -> dict[str, str]:
    """Splits what a script wrote; text before the first section is dropped."""
    sections: dict[str, str] = {}
    for part in text.split(f"\n{mark} ")[1:]:
        name, _, content = part.partition("\n")
        sections[name] = content.strip("\n")
    return sections
