"""Charts: their Vega-Lite files, the scripts that draw them on a page, and files of a single one.

A chart is a file `templates/NAME.vl.json` with named points and holes, `{"$": "name"}`. The page's
`chart.js` fills it for readers who filter; `drawing` fills it for a figure of a paper.
"""

import hashlib
import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import metadata, resources
from pathlib import Path
from types import MappingProxyType, ModuleType

import polars as pl

from fleetrank.analysis.errors import AnalysisError
from fleetrank.foundation.files import StorageError, cache_folder, make_folder, replace_file
from fleetrank.foundation.small_file import open_regular

TEMPLATES = "report/templates"
_SNIPPET = "window.vegaEmbed = vegaEmbed;"
_MOST_BYTES = 8 << 20
"""The scripts have less than one million."""
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
    kept = cache_folder() / "scripts" / f"vega-{version}.js"
    if (found := _kept_script(kept)) is not None:
        return found
    text = str(_library().javascript_bundle(_SNIPPET))
    try:
        make_folder(kept.parent)
        replace_file(kept, f"{_mark(text)}\n{text}".encode())
    except StorageError as error:
        _LOG.info("the scripts of charts are not kept: %s", error)
    return text


def _kept_script(path: Path) -> str | None:
    """`None` without a file, and for one that is damaged: its first line has the sha256."""
    with suppress(OSError, UnicodeDecodeError):
        with open_regular(path) as file:
            mark, _, text = file.read(_MOST_BYTES).decode().partition("\n")
        if mark == _mark(text):
            return text
    return None


def _mark(text: str) -> str:
    return f"// {_SNIPPET} {hashlib.sha256(text.encode()).hexdigest()}"


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
    folder = resources.files("fleetrank.analysis").joinpath(TEMPLATES)
    files = {"look": "look.json"} | {name: f"{name}.vl.json" for name in names}
    return {
        name: json.loads(folder.joinpath(file).read_text(encoding="utf-8"))
        for name, file in files.items()
    }


def filled(part: object, values: Mapping[str, object]) -> object:
    """A part of a specification with its holes filled; a missing value is a `KeyError`."""
    if isinstance(part, list):
        return [filled(one, values) for one in part]
    if not isinstance(part, dict):
        return part
    return values[part["$"]] if "$" in part else {k: filled(v, values) for k, v in part.items()}


ONE_COLUMN_PX, TWO_COLUMNS_PX = 336, 688
"""3.5 and 7.17 inches at 96 pixels an inch. Source: IEEE, two columns of 3.5 inches."""
_AXIS_PX = 60
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
    specs = chart_specs(name)
    look = specs["look"]
    body = filled(specs[name], {"about": None, **values})
    if not isinstance(body, dict) or not isinstance(look, dict):
        raise TypeError(f"{name} is not a specification")
    return {
        **body,
        "$schema": _SCHEMA,
        "width": width,
        "height": height,
        "autosize": {"type": "fit", "contains": "padding"},
        "background": "white",
        "datasets": dict(datasets),
        "config": look | {"font": _FONT, "legend": {**look["legend"], "layout": _LEGENDS}},
    }


def stacked(panels: Sequence[Spec], width: int) -> Spec:
    """Drawings of one set of points each, below each other; together they are `width` wide."""
    of_all = ("$schema", "background", "config")
    parts = [
        {name: part for name, part in one.items() if name not in (*of_all, "autosize", "datasets")}
        for one in panels
    ]
    for part, one in zip(parts, panels, strict=True):
        # Names of points would be of the whole.
        (part["data"],) = ({"values": rows} for rows in dict(one["datasets"]).values())  # type: ignore[call-overload]
        part["width"] = width - _AXIS_PX  # the axis of a part is outside of its width
    return {**{name: panels[0][name] for name in of_all}, "vconcat": parts}


@dataclass(frozen=True, kw_only=True)
class PaperFigure:
    """A drawing for a paper, with what a reader needs to trust it.

    The class has no slots, because `cached_property` needs a `__dict__`.

    Attributes:
        name: as `paper_figures.FIGURES` has it.
        caption: what is drawn, n, the kind of interval, and what was left out.
        spec: the drawing as Vega-Lite, with its points.
        data: the figures that are drawn, full precision.
    """

    name: str
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
