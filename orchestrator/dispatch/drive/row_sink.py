"""The contract of what keeps the rows of a sweep."""

from typing import Protocol

from fleetrank.orchestrator.rows.translate import Row


class RowSink(Protocol):
    """Where rows become durable."""

    def append(self, row: Row) -> None:
        """Stores a row; safe from a crash of this process.

        Raises:
            StoreError: the disk is full; the row stays in memory for a later try.
        """
        ...

    def flush(self) -> None:
        """Makes every stored row safe from a power cut; raises as `append`."""
        ...

    def publish(self) -> None:
        """Shows the rows to readers; raises as `append`."""
        ...
