"""Asks several questions in one script. A random mark separates the answers."""

import secrets
from collections.abc import Mapping

from fleetrank.device_agents.android.adb.phone import Phone
from fleetrank.device_agents.contract.agent import StopRequested, never_stop

PROLOGUE = """
section() { printf '\\n%s %s\\n' "$mark" "$1"; }
mark=$1
"""
"""The start of a script with sections; `section NAME` begins the next section."""


def read_sections(
    phone: Phone,
    script: str,
    *,
    timeout_s: float,
    stop_requested: StopRequested = never_stop,
) -> Mapping[str, str]:
    """Runs one of our scripts and returns the text of each section, by name.

    If a command fails on the phone, its section is empty: the value is unknown, and this is not
    an error. Raises the same errors as `Phone.shell`.
    """
    mark = secrets.token_hex(8)
    result = phone.shell(
        PROLOGUE + script, mark, timeout_s=timeout_s, stop_requested=stop_requested
    )
    return split_sections(result.stdout, mark)


def split_sections(text: str, mark: str) -> dict[str, str]:
    """Splits a script's output into sections; text before the first section is dropped."""
    sections: dict[str, str] = {}
    for part in text.split(f"\n{mark} ")[1:]:
        name, _, content = part.partition("\n")
        sections[name] = content.strip("\n")
    return sections
