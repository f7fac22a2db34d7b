"""Reads the facts of a phone in one call."""

from fleetrank.device_agents.android.adb.phone import Phone
from fleetrank.device_agents.android.adb.sections import read_sections
from fleetrank.device_agents.android.state.cores import CORES_SCRIPT
from fleetrank.device_agents.android.state.probe_text import (
    PROPERTIES,
    PhoneFacts,
    facts_of_sections,
)

PROBE_TIMEOUT_S = 60.0
"""SurfaceFlinger of a slow phone alone takes seconds."""
_PROPERTIES_SCRIPT = "".join(f"section {name}; getprop {name}\n" for name in PROPERTIES)
_SCRIPT = f"""
{{
{_PROPERTIES_SCRIPT}
section memory; cat /proc/meminfo
section storage; df -k /data/local/tmp
section battery; dumpsys battery
section thermal; dumpsys thermalservice
section gpu; dumpsys SurfaceFlinger | grep -m 1 GLES:
section taskset; command -v taskset
}} 2>/dev/null
{CORES_SCRIPT}
"""


def probe_phone(phone: Phone) -> PhoneFacts:
    """Reads all facts of a phone; raises the same errors as `Phone.shell`."""
    sections = read_sections(phone, _SCRIPT, timeout_s=PROBE_TIMEOUT_S)
    return facts_of_sections(sections, has_exit_codes=phone.has_exit_codes())
