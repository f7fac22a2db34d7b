"""What makes the page stand alone: scripts once, data that cannot end its own block."""

import base64
import hashlib
import json
from functools import cache

from markupsafe import Markup

from analysis.errors import AnalysisError

_SNIPPET = "window.vegaEmbed = vegaEmbed;"


@cache
def script_bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script that needs no network.

    Raises:
        AnalysisError: the drawing library is not installed.
    """
    try:
        import vl_convert
    except ImportError as error:
        raise AnalysisError(
            "the page needs the drawing library, which is not installed",
            "install it: pip install 'fleetrank[report]'",
        ) from error
    return str(vl_convert.javascript_bundle(_SNIPPET))


def json_block(value: object) -> Markup:
    """JSON for a `<script type="application/json">`: nothing in it can end the block.

    Source: HTML standard, 4.12.1.3: `<` is all that a parser looks for inside a script.
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))  # noqa: S704


def own_script(text: str) -> Markup:
    """A script of this project or its bundle, as it stands.

    Raises:
        ValueError: it holds what would end its block.
    """
    if "</script" in text.lower() or "<!--" in text:
        raise ValueError("a script that ends its own block cannot be embedded")
    return Markup(text)  # noqa: S704 - shipped with the product, never from data


def script_hash(text: str) -> str:
    """The source expression by which a content security policy knows an inline script."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
