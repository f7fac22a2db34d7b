"""Reads what OpenSSH's client prints when it fails; pure.

Source: OpenSSH 9.2, sshconnect.c, sshconnect2.c, readconf.c and packet.c: the texts below.
"""

import re
import shlex

from fleetrank.device_agents.errors import AgentError, AwayError, UnusableDeviceError
from fleetrank.foundation.visible_text import shortened, visible_line

TRANSPORT_FAILED = 255
"""Exit code of the client when the connection failed, whatever the command did. Source: ssh(1)."""


class NoConnectionError(AwayError):
    """The machine was not reached, or the connection to it ended."""


_LONGEST = 500
"""Characters of a line that can be shown."""
_CHANGED_KEY = re.compile(r"HOST IDENTIFICATION HAS CHANGED|host key .{0,200} has changed", re.I)
_UNKNOWN_KEY = re.compile(r"Host key verification failed|No .{1,40} host key is known", re.I)
_REFUSED = re.compile(r"Permission denied|Too many authentication failures", re.I)
_BAD_NAME = re.compile(r"Could not resolve hostname", re.I)
_BAD_FILE = re.compile(r"Bad configuration option|Can't open user config file|Bad owner or", re.I)


def transport_error(host: str, stderr: str) -> AgentError:
    """The typed error of a connection that failed; unknown texts are transient.

    Args:
        host: as the user gave it to ssh.
        stderr: of the client.
    """
    name = shlex.quote(host)
    if _CHANGED_KEY.search(stderr):
        return UnusableDeviceError(
            f"{host} shows another host key than the one in known_hosts",
            f"if the board was installed again, check its key, then run `ssh-keygen -R {name}` "
            f"and `ssh {name}`; otherwise another machine answers under this name",
        )
    if _UNKNOWN_KEY.search(stderr):
        return UnusableDeviceError(
            f"the host key of {host} is not known yet",
            f"run `ssh {name}` once, compare the key that it shows, and accept it",
        )
    if _REFUSED.search(stderr):
        return UnusableDeviceError(
            f"{host} accepts no key of this user: {_last_line(stderr)}",
            f"run `ssh-copy-id {name}`, or load the key with ssh-add; passwords are not used",
        )
    if _BAD_FILE.search(stderr):
        return UnusableDeviceError(
            f"ssh rejects its configuration: {_last_line(stderr)}", "correct that file"
        )
    if _BAD_NAME.search(stderr):
        return NoConnectionError(
            f"no address is known for {host}", f"check the name with `ssh {name} true`"
        )
    return NoConnectionError(
        f"no connection to {host}: {_last_line(stderr)}",
        f"check that it is on and reachable: `ssh {name} true`",
    )


def _last_line(stderr: str) -> str:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    # Cut before it is made visible, which takes time for each character.
    return shortened(visible_line(lines[-1][:_LONGEST])) if lines else "the connection ended"
