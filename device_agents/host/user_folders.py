"""Where fleetrank keeps what belongs to a user of a host rather than to a workspace."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """`fleetrank` in the user's cache folder, as the XDG base directories name it."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "fleetrank"
