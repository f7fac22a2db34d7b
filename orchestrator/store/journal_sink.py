"""Stores the rows of a running sweep: in its journal at once, in Parquet from time to time."""

from pathlib import Path

from fleetrank.device_agents.contract.measurement import Measurement
from fleetrank.foundation.lease import give_up_at_once, host_lease
from fleetrank.orchestrator.durable import store_error, sync_file, sync_folder
from fleetrank.orchestrator.rows import Row
from fleetrank.orchestrator.store.journal import Journal
from fleetrank.orchestrator.store.results import ResultStore
from fleetrank.orchestrator.store.side import SideForm, side_lines
from fleetrank.orchestrator.store.small_files import set_aside


class JournalSink:
    """The `RowSink` of a results folder; with a form, that of a side pass."""

    def __init__(self, store: ResultStore, journal: Journal, form: SideForm | None = None) -> None:
        self._store = store
        self._journal = journal
        self._form = form
        self._pending: list[Row] = []
        self._unsynced: list[Path] = []

    def append(self, row: Row, measurement: Measurement | None = None) -> None:
        """Stores a row; the output of a tool goes into a separate file.

        With a form, the rows that it makes of the measurement are stored instead.
        """
        if self._form is None or measurement is None:
            self._pending.append(row)
            self._write_pending()
            return
        rows = self._form.rows_of(row, measurement)
        self._journal.append_lines(side_lines(self._form.table, rows, self._journal.sweep_id))

    def flush(self) -> None:
        """Makes every stored row safe from a power cut.

        Raises:
            MovedFolderError: the workspace was moved; all rows up to now are stored in the new
                place.
        """
        self._write_pending()
        self._sync_logs()
        self._journal.flush()
        self._journal.check_place()

    def publish(self) -> None:
        """Publishes the rows to readers; skipped while another sweep measures on this host."""
        sweep_id = self._journal.sweep_id
        with host_lease(f"sweep {sweep_id}", give_up=give_up_at_once) as is_held:
            if is_held:
                self._journal.check_place()
                self._store.publish(sweep_id)

    def _write_pending(self) -> None:
        while self._pending:
            # In the folder of the journal, also if the workspace has been moved.
            results = self._journal.place.parent.parent
            row = set_aside(results, self._pending[0])
            if isinstance(row["raw_log"], str):
                self._unsynced.append(results / row["raw_log"])
            # The journal keeps the rows that it cannot write.
            del self._pending[0]
            self._journal.append(row)

    def _sync_logs(self) -> None:
        for path in self._unsynced:
            try:
                sync_file(path)
            except OSError as error:
                raise store_error(path, error) from error
        for folder in {path.parent for path in self._unsynced}:
            sync_folder(folder)
        self._unsynced.clear()
