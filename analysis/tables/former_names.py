"""Former names of tables: each is now a table with settings.

They are known for one version, so that scripts keep working; `latency` stays as a short name.
"""

from collections.abc import Mapping
from types import MappingProxyType

from fleetrank.analysis.tables.table_request import TableRequest


def _now(table: str, setting: str, word: str) -> TableRequest:
    return TableRequest(table=table, settings=((setting, word),))


FORMER: Mapping[str, TableRequest] = MappingProxyType(
    {
        "latency": _now("cells", "quantity", "latency"),
        "coldstart": _now("cells", "quantity", "coldstart"),
        "composites": _now("frm", "score", "composites"),
        "decomposition": _now("transfer", "detail", "full"),
        "frameworks": _now("transfer", "by", "runtime"),
        "ratio-transfer": _now("predictability", "method", "ratio"),
        "shifts": _now("disagreement", "by", "model"),
        "coverage": _now("proxies", "own", "fewest"),
        "next-models": _now("effort", "over", "models"),
        "savings": _now("effort", "over", "devices"),
        "dropped": _now("quality", "list", "dropped"),
        "audit": _now("quality", "list", "findings"),
    }
)
"""Former name to the present table and its settings."""

KEPT = ("latency",)
"""Names that stay; no sentence says that they are former ones."""


def request_of(name: str) -> TableRequest:
    """The table that a name stands for, a present or a former one."""
    return FORMER.get(name, TableRequest(table=name))


def renaming_of(name: str) -> str | None:
    """A sentence that gives the present form of a former name; `None` for all others."""
    if name not in FORMER or name in KEPT:
        return None
    return f"'{name}' is now {FORMER[name].sentence}"
