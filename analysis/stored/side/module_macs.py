"""The side table `module_macs`: what the MACs of a profiled model consist of.

It is of a network and not of a device: one set of rows for each sweep, model and workload.
"""

from fleetrank.analysis.stored.columns import COLUMNS
from fleetrank.analysis.stored.schema.column import INT, STR, column
from fleetrank.analysis.stored.side.side_table import SideTable

_SHARED = {one.name: one for one in COLUMNS}

MODULE_MACS = SideTable(
    name="module_macs",
    doc="MACs of each module of a profiled network, of one sample; a user's file has no such rows.",
    own=(
        _SHARED["model"],
        _SHARED["workload"],
        column("module", STR, "path of the module, empty for the network itself"),
        column("source_operator", STR, "PyTorch's name of the operation"),
        column("macs", INT, "of this operation in the module, without the modules inside it"),
    ),
    remedy="restore it from a copy, or delete it: the shares of MACs of its sweep are then empty",
)
