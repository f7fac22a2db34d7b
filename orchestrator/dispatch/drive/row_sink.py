"""The contract of a row sink, which stores the rows of a sweep."""

from typing import Protocol

from fleetrank.orchestrator.rows.measured_columns import Row


class RowSink(Protocol):
    """Where rows become durable."""

    def append(self, row: Row) -> None:
        """Stores a row; afterwards it is safe from a crash of this process.

        Raises:
            StoreError: the disk is full; the row stays in memory and is written later.
        """
        ...

    def flush(self) -> None:
        """Makes every stored row safe from a power cut; raises the errors of `append`."""
        ...

    def publish(self) -> None:
        """Publishes the rows to readers; raises the errors of `append`."""
        ...
