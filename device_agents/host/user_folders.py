"""Folders of fleetrank that belong to a user of a host, not to a workspace."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """`fleetrank` in the user's cache folder, as defined by the XDG base directories."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "fleetrank"
