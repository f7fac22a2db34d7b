"""Where the rows of a running sweep go: into its journal at once, into Parquet now and then."""

from dataclasses import dataclass

from device_agents.host_lease import give_up_at_once, host_lease
from orchestrator.store.journal import Journal
from orchestrator.store.raw_logs import set_aside
from orchestrator.store.results import ResultStore
from orchestrator.translate import Row


@dataclass(frozen=True, slots=True)
class JournalSink:
    """Fulfils `dispatch.row_sink.RowSink`."""

    store: ResultStore
    journal: Journal
    sweep_id: str

    def append(self, row: Row) -> None:
        """See `RowSink`; what a tool printed goes into a file of its own."""
        self.journal.append(set_aside(self.store.root, row))

    def flush(self) -> None:
        """See `RowSink`."""
        self.journal.flush()

    def publish(self) -> None:
        """See `RowSink`; beside another sweep's measurement it is left to the next time."""
        with host_lease(f"sweep {self.sweep_id}", give_up=give_up_at_once) as is_held:
            if is_held:
                self.store.publish(self.sweep_id)
