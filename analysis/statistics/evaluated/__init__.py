"""What `fleetrank eval` stored. Open `evaluations_table`."""
