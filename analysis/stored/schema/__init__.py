"""What a column of the measurements table is. Open `column`."""
