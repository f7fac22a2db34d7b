"""Charts: their Vega-Lite files, the scripts that draw them on a page, and files of a single one.

A chart is a file `templates/NAME.vl.json` with named points and holes, `{"$": "name"}`. The page's
`chart.js` fills it for readers who filter; `drawing` fills it for a figure of a paper.
"""

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import metadata, resources
from types import MappingProxyType, ModuleType

import polars as pl

from fleetrank.analysis.errors import AnalysisError
from fleetrank.foundation.checksums import read_checked_object, with_checksum
from fleetrank.foundation.errors import BadFileError
from fleetrank.foundation.files import StorageError, cache_folder, make_folder, replace_file

TEMPLATES = "report/templates"
_SNIPPET = "window.vegaEmbed = vegaEmbed;"
_LIBRARY = "vl-convert-python"
_SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
_LOG = logging.getLogger(__name__)
Spec = dict[str, object]


@cache
def script_bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script that needs no network.

    Bundling takes seconds, so that the user's cache folder keeps the script of each version.

    Raises:
        AnalysisError: the drawing library is not installed.
    """
    try:
        version = metadata.version(_LIBRARY)
    except metadata.PackageNotFoundError as error:
        raise _not_installed() from error
    kept = cache_folder() / "scripts" / f"vega-{version}.json"
    with suppress(BadFileError):  # missing or damaged
        return str(read_checked_object(kept)["script"])
    text = str(_library().javascript_bundle(_SNIPPET))
    try:
        make_folder(kept.parent)
        replace_file(kept, json.dumps(with_checksum({"script": text})).encode())
    except StorageError as error:
        _LOG.info("the scripts of charts are not kept: %s", error)
    return text


def _library() -> ModuleType:
    try:
        import vl_convert
    except ImportError as error:
        raise _not_installed() from error
    return vl_convert


def _not_installed() -> AnalysisError:
    return AnalysisError(
        "charts need the drawing library, which is not installed",
        "install it: pip install 'fleetrank[report]'",
    )


def chart_specs(*names: str) -> Spec:
    """The Vega-Lite specifications of charts, and their common style `look`."""
    return {name: json.loads(_text_of(name)) for name in ("look", *names)}


def _text_of(name: str) -> str:
    file = "look.json" if name == "look" else f"{name}.vl.json"
    folder = resources.files("fleetrank.analysis").joinpath(TEMPLATES)
    return folder.joinpath(file).read_text(encoding="utf-8")


def filled(text: str, values: Mapping[str, object]) -> Spec:
    """A specification whose holes are filled as it is parsed; a missing value is a `KeyError`."""
    spec: Spec = json.loads(text, object_hook=lambda one: values[one["$"]] if "$" in one else one)
    return spec


ONE_COLUMN_PX, TWO_COLUMNS_PX = 336, 688
"""3.5 and 7.17 inches at 96 pixels an inch. Source: IEEE, two columns of 3.5 inches."""
_PT_PER_PX = 0.75
_SIZE = re.compile(r'\b(width|height)="([\d.]+)"')
_LEGENDS = {"bottom": {"anchor": "start", "bounds": "full"}}
"""They begin at the left end, below the labels of the axis too."""
_PNG_PPI = 300
_FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
"""The first one is in the drawing library, so that every machine draws the same."""


def drawing(
    name: str,
    width: int,
    height: int,
    datasets: Mapping[str, Sequence[Mapping[str, object]]],
    values: Mapping[str, object],
) -> Spec:
    """A whole specification, black on white, `width` by `height` pixels with its axes."""
    look = json.loads(_text_of("look"))
    return {
        **filled(_text_of(name), {"about": None, **values}),
        "$schema": _SCHEMA,
        "width": width,
        "height": height,
        "autosize": {"type": "fit", "contains": "padding"},
        "background": "white",
        "datasets": dict(datasets),
        "config": look | {"font": _FONT, "legend": {**look["legend"], "layout": _LEGENDS}},
    }


@dataclass(frozen=True, kw_only=True)
class PaperFigure:
    """A drawing for a paper, with what a reader needs to trust it.

    The class has no slots, because `cached_property` needs a `__dict__`.

    Attributes:
        caption: what is drawn, n, the kind of interval, and what was left out.
        spec: the drawing as Vega-Lite, with its points.
        data: the figures that are drawn, full precision.
    """

    caption: str
    spec: Spec
    data: pl.DataFrame

    def svg(self) -> str:
        """The drawing as SVG; its fonts are those of the reader.

        Raises:
            AnalysisError: the drawing library is not installed.
        """
        return self._drawn

    def pdf(self) -> bytes:
        """The drawing as a page of equal size, with its fonts; raises as `svg`."""
        # The library takes a pixel as a point; `viewBox` keeps the drawing.
        sizes = _SIZE.sub(
            lambda one: f'{one[1]}="{float(one[2]) * _PT_PER_PX:g}"', self._drawn, count=2
        )
        return bytes(_library().svg_to_pdf(sizes))

    def png(self) -> bytes:
        """The drawing with 300 pixels an inch; raises as `svg`."""
        return bytes(_library().svg_to_png(self._drawn, scale=_PT_PER_PX, ppi=_PNG_PPI))

    def _repr_svg_(self) -> str:
        """What a notebook shows."""
        return self._drawn

    @cached_property
    def _drawn(self) -> str:
        return str(_library().vegalite_to_svg(self.spec))


IMAGES: Mapping[str, Callable[[PaperFigure], bytes]] = MappingProxyType(
    {"pdf": PaperFigure.pdf, "svg": lambda one: one.svg().encode(), "png": PaperFigure.png}
)
"""Form to what draws it."""
