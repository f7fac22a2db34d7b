"""Templates to responses; every value is escaped."""

from collections.abc import Mapping
from functools import cache, partial
from importlib import resources

import jinja2
from starlette.responses import HTMLResponse

from fleetrank.analysis.report.page import script_bundle, shown
from fleetrank.analysis.tables.values import value_text
from fleetrank.orchestrator.progress.wording import duration

_DATA = """"use strict";
const data = JSON.parse(document.getElementById("data").textContent), specs = data.specs;"""
"""What `chart.js` needs, as the first script of the report has it."""


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fleetrank.orchestrator", "server/templates"),
        autoescape=True,
        finalize=shown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["duration"] = duration
    environment.filters["value"] = partial(value_text, is_grouped=True)
    return environment


def render(template: str, values: Mapping[str, object], status: int = 200) -> HTMLResponse:
    """Returns a page; the values have the names that the template uses."""
    return HTMLResponse(_environment().get_template(template).render(values), status)


@cache
def asset(name: str) -> str:
    """Returns a style sheet or script.

    Raises:
        FileNotFoundError: no asset has this name.
    """
    if name == "vega.js":
        return script_bundle()
    if name == "time.js":
        parts = "\n".join(_of_report(part) for part in ("chart.js", name))
        return f"{_DATA}\n{parts}"
    if name == "page.css":
        # The style sheet of the report, so that both look the same.
        return _of_report(name)
    folder = resources.files("fleetrank.orchestrator").joinpath("server/assets")
    return folder.joinpath(name).read_text(encoding="utf-8")


def _of_report(name: str) -> str:
    folder = resources.files("fleetrank.analysis").joinpath("report/templates")
    return folder.joinpath(name).read_text(encoding="utf-8")
