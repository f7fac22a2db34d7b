"""Registers a browser: prints a link and its code, waits for the tab, and runs the canary."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from fleetrank.device_agents.browser.agent import BrowserAgent, facts_of, read_options
from fleetrank.device_agents.browser.certificate import OWN, fingerprint, own_folder, self_signed
from fleetrank.device_agents.browser.place import Place
from fleetrank.device_agents.browser.tab_messages import TabFacts, words
from fleetrank.device_agents.browser.tab_server import serving
from fleetrank.device_agents.canary import CANARY_LIMIT_S, CANARY_POLICY
from fleetrank.device_agents.contract.agent import Cluster, Say
from fleetrank.device_agents.contract.kind import CanaryPlan, Fact, RegistrationRequest
from fleetrank.device_agents.contract.task import OptionValue
from fleetrank.device_agents.errors import TransientError

LINK_LIMIT_S = 600.0
"""For a person to fetch the device and open the link."""


class BrowserRegistrar:
    """Registers browsers; `address` is where their page is served."""

    programs = ()
    address_in = "listen"
    least_shares: Mapping[str, float] = MappingProxyType({})

    def __init__(self, options: Mapping[str, OptionValue]) -> None:
        """Takes the options of a browser, if it has a file already."""
        self._options = options

    def meet(self, request: RegistrationRequest, say: Say) -> "NewBrowser":
        """Waits until the link is opened; a registered browser opens its page again.

        Raises:
            FleetError: it was not opened, or the browser cannot be measured.
        """
        given = {**self._options, **request.options, "listen": request.address}
        if given.get("certificate") == OWN:
            made = self_signed(Place(listen=request.address).host, own_folder())
            given |= dict(zip(("certificate", "private_key"), map(str, made), strict=True))
        options = read_options(given)
        desk = serving(options.place)
        if options.key_hash is not None:
            facts = desk.tab(options.key_hash, LINK_LIMIT_S).facts
            return NewBrowser(given=given, found=facts, key_hash=options.key_hash)
        desk.paired, desk.token = None, secrets.token_urlsafe(12)
        link = f"{options.place.link}#pair={desk.token}"
        say(f"open this link in the browser, within {LINK_LIMIT_S / 60:.0f} minutes: {link}")
        for line in code_of(link):
            say(line)
        if options.certificate is not None:
            say(f"SHA-256 of the certificate: {fingerprint(Path(options.certificate))}")
        pairing = desk.wait_for_pairing(LINK_LIMIT_S)
        if pairing is None:
            desk.token = None
            raise TransientError("the link was not opened", "run the command again")
        key_hash, facts = pairing
        say(f"found {words(facts.engine)} on {words(facts.system)}")
        if not facts.is_isolated:
            say("the page is not isolated: one thread, and a clock of coarse steps")
        return NewBrowser(given=given, found=facts, key_hash=key_hash)

    def identity_of(self, options: Mapping[str, OptionValue]) -> str | None:
        """The key of the browser and its version: a newer one measures otherwise."""
        key_hash = options.get("key_hash")
        return None if key_hash is None else f"{key_hash}/{options.get('engine')}"

    def is_same(self, identity: str, other: str) -> bool:
        """Whether both are one browser in one version."""
        return identity == other

    def canary_tolerance(self, options: Mapping[str, OptionValue]) -> float:
        """As in its options."""
        return read_options(options).canary_tolerance

    def clean(self, options: Mapping[str, OptionValue]) -> None:
        """Nothing is left in a browser but its key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBrowser:
    """A browser whose tab is open."""

    given: Mapping[str, OptionValue]
    found: TabFacts
    key_hash: str
    clusters: tuple[Cluster, ...] = ()

    @property
    def identity(self) -> str | None:
        """As of `BrowserRegistrar.identity_of`."""
        return BrowserRegistrar({}).identity_of(self.options({}))

    @property
    def model(self) -> str:
        """Engine and system."""
        return words(f"{self.found.engine} on {self.found.system}")

    def options(self, before: Mapping[str, OptionValue]) -> dict[str, OptionValue]:
        """The options for its agent."""
        found = {"key_hash": self.key_hash, "engine": words(self.found.engine)}
        options = {**before, **self.given, **found}
        read_options(options)
        return options

    @property
    def facts(self) -> dict[str, Fact]:
        """What the page says of its browser."""
        found = facts_of(self.found, read_options(self.given).tier)
        return {"model": self.model, "cores": found.logical_cores, **dict(found.extra)}

    def canary(self, options: Mapping[str, OptionValue]) -> CanaryPlan | None:
        """In LiteRT.js, because the canary is a TFLite file."""
        return CanaryPlan(
            agent=BrowserAgent(options),
            policy=CANARY_POLICY,
            timeout_s=CANARY_LIMIT_S,
            is_optional=True,
        )


def code_of(link: str) -> list[str]:
    """The link as a QR code of the terminal's characters; empty without the library."""
    try:
        import segno
    except ImportError:
        return []
    import io

    out = io.StringIO()
    segno.make(link, error="l").terminal(out, compact=True)
    return out.getvalue().splitlines()
