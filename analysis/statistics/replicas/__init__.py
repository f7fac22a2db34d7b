"""Several processes of one cell at the same time. Open `replicas_table`."""
