"""Where pages reach the server; the kind asks for it, so it loads nothing."""

from dataclasses import dataclass

from fleetrank.device_agents.errors import PermanentError
from fleetrank.foundation.listening import is_loopback


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where pages reach the server.

    Attributes:
        listen: `HOST:PORT`; a browser on another device needs the name or address that it sees.
        certificate: path of a file in PEM; with `private_key` the address begins with https.
            Browsers isolate pages only there, and on their own computer.
    """

    listen: str
    certificate: str | None = None
    private_key: str | None = None

    @property
    def host(self) -> str:
        """The part before the port, without brackets."""
        return self.listen.rpartition(":")[0].strip("[]")

    @property
    def port(self) -> int:
        """The part after the colon.

        Raises:
            PermanentError: it is not a port.
        """
        text = self.listen.rpartition(":")[2]
        if not (text.isascii() and text.isdigit() and 0 < int(text) < 2**16 and self.host):
            raise PermanentError(
                f"{self.listen!r} is not an address and a port", "write for example 127.0.0.1:8766"
            )
        return int(text)

    @property
    def is_here(self) -> bool:
        """Whether only browsers of this computer reach it."""
        return is_loopback(self.host)

    @property
    def link(self) -> str:
        """The address that a person opens."""
        return f"http{'' if self.certificate is None else 's'}://{self.listen}/"
