"""Side tables: results of another kind than measurements. Open `side_table`."""
