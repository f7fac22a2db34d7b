"""`fleetrank predict`: what a hardly measured device will do, with intervals."""

from typing import Annotated

import typer

from fleetrank.analysis.tables.tables import TABLES
from fleetrank.foundation.vocabulary import Form
from fleetrank.orchestrator.cli.context import Now
from fleetrank.orchestrator.cli.listing import TableView, with_view
from fleetrank.orchestrator.cli.options import AsForm
from fleetrank.orchestrator.cli.report_command import print_in_form, selected_table
from fleetrank.orchestrator.cli.selector_options import Explain, JsonForm, with_selectors
from fleetrank.orchestrator.workspace.selectors import Selectors

_QUANTITY = TABLES["predict"].settings["quantity"]


@with_view
@with_selectors("sweep", "source", "runtime", "precision", "workload", "include_simulated", "seed")
def predict(
    *,
    device: Annotated[str, typer.Option(help="Device to predict, or a platform pattern with *.")],
    quantity: Annotated[
        str, typer.Option(metavar="WORD", help=f"One of {', '.join(_QUANTITY.words)}.")
    ] = _QUANTITY.default,
    models: Annotated[
        list[str] | None,
        typer.Option(help="List only these models: a name, or a pattern with *; may be repeated."),
    ] = None,
    coverage: Annotated[
        float, typer.Option(help="Share of intervals that hold the value of a measurement.")
    ] = 0.9,
    like: Annotated[
        str | None,
        typer.Option(
            help="Device, platform or pattern with *: the configuration of a device without "
            "measurements."
        ),
    ] = None,
    format_: AsForm = Form.TABLE,
    as_json: JsonForm = False,
    explain: Explain = False,
    now: Now = False,
    view: TableView,
    selectors: Selectors,
) -> None:
    """Predict every model on a device from its few measurements and all known devices.

    `fleetrank report show predict` prints the same as a table and accepts all selectors.
    """
    given = {
        "quantity": quantity,
        "coverage": f"{coverage:g}",
        "models": ",".join(models or ()),
        "like": like or "",
    }
    chosen = selectors.model_copy(
        update={
            # A device without measurements is on no stored row that a target could select.
            "target": None if like else device,
            "settings": tuple(f"{name}={value}" for name, value in given.items()),
        }
    )
    print_in_form(
        selected_table("predict", chosen, now=now),
        Form.JSON if as_json else format_,
        is_explained=explain,
        view=view,
    )
