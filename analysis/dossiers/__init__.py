"""All that is known about one device, one model or one sweep."""
