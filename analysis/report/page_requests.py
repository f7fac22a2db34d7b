"""The tables of the page by their names on it, and how `report show` prints each."""

from collections.abc import Mapping
from types import MappingProxyType

from fleetrank.analysis.tables.table_request import TableRequest

REQUESTS: Mapping[str, TableRequest] = MappingProxyType(
    {
        "latency": TableRequest(table="cells"),
        "coldstart": TableRequest(table="cells", settings=(("quantity", "coldstart"),)),
        "memory": TableRequest(table="memory"),
        "scaling": TableRequest(table="scaling"),
        "quality": TableRequest(table="quality"),
        "dropped": TableRequest(table="quality", settings=(("list", "dropped"),)),
        "host": TableRequest(table="quality", settings=(("list", "host"),)),
        "waits": TableRequest(table="quality", settings=(("list", "waits"),)),
        "tokens": TableRequest(table="tokens"),
        "phases": TableRequest(table="phases"),
        "strategies": TableRequest(table="strategies"),
        "crossover": TableRequest(table="strategies", settings=(("part", "crossover"),)),
        "crossover-transfer": TableRequest(table="strategies", settings=(("part", "transfer"),)),
        "segment-sizes": TableRequest(table="strategies", settings=(("part", "sizes"),)),
        "components": TableRequest(table="components"),
        "operators": TableRequest(table="components", settings=(("split", "operator"),)),
        "frm": TableRequest(table="frm"),
        "disagreement": TableRequest(table="disagreement"),
        "shifts": TableRequest(table="disagreement", settings=(("by", "model"),)),
        "transfer": TableRequest(table="transfer"),
        "frameworks": TableRequest(table="transfer", settings=(("by", "runtime"),)),
        "predictions": TableRequest(table="predictions"),
        "predictability": TableRequest(table="predictability"),
        "rank-sets": TableRequest(table="rank-sets"),
        "variance": TableRequest(table="variance"),
        "plans": TableRequest(table="variance", settings=(("part", "plans"),)),
        "stability": TableRequest(table="stability"),
        "pareto": TableRequest(table="pareto"),
        "regret": TableRequest(table="regret"),
    }
)
