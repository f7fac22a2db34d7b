"""All side tables by name. To add one, write a module beside this one and add its table here."""

from collections.abc import Mapping
from types import MappingProxyType

from fleetrank.analysis.stored.side.component_times import COMPONENT_TIMES
from fleetrank.analysis.stored.side.evaluations import EVALUATIONS
from fleetrank.analysis.stored.side.module_macs import MODULE_MACS
from fleetrank.analysis.stored.side.replica_runs import REPLICA_RUNS
from fleetrank.analysis.stored.side.side_table import SideTable

SIDE_TABLES: Mapping[str, SideTable] = MappingProxyType(
    {table.name: table for table in (COMPONENT_TIMES, EVALUATIONS, MODULE_MACS, REPLICA_RUNS)}
)
