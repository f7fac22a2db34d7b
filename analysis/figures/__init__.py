"""What the figures show, as values; how they are drawn is in `report/templates/*.js`."""
