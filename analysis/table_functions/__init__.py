"""One function per table: from stored attempts and a selection to a `Table`."""
