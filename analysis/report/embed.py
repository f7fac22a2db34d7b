"""What makes the page stand alone: scripts once, data that cannot end its own block."""

import base64
import hashlib
import json
from functools import cache

from markupsafe import Markup

from fleetrank.analysis.errors import AnalysisError
from fleetrank.foundation.visible_text import visible

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
    text = _dumped(value)
    # What JSON escapes by itself has to be shown like everywhere else, too.
    if "\\u" in text or visible(text) != text:
        text = _dumped(_visible_parts(value))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))  # noqa: S704


def shown(value: object) -> object:
    """What a template writes for a value: text with what changes its direction escaped.

    For `finalize` of a Jinja environment; markup stays as it is.
    """
    return visible(value) if type(value) is str else value


def _dumped(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)


def _visible_parts(value: object) -> object:
    """The same for all text in a value: names are compared with those that templates wrote."""
    if isinstance(value, dict):
        return {shown(key): _visible_parts(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_visible_parts(part) for part in value]
    return shown(value)


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
