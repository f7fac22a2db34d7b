"""`fleetrank faster`: is the model that is faster here also faster on the devices of users?"""

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fleetrank.analysis.stored.selection import ORDER_MARGIN
from fleetrank.foundation.codec import json_text
from fleetrank.foundation.vocabulary import Form, Origin
from fleetrank.orchestrator.cli.context import current, settle_workspace
from fleetrank.orchestrator.cli.listing import AsJson
from fleetrank.orchestrator.cli.options import Explain, share, with_selectors
from fleetrank.orchestrator.cli.reading_turn import Now
from fleetrank.orchestrator.cli.report_command import (
    in_options,
    print_in_form,
    selected_session,
    selected_table,
    wrapped,
)
from fleetrank.orchestrator.cli.table_view import TableView, with_table_view
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.workspace.selectors import Selectors

if TYPE_CHECKING:
    from fleetrank.analysis.statistics.pair_answer import PairAnswer


@with_table_view
@with_selectors("sweep", "runtime", "precision", "family", "workload", "include_simulated", "seed")
def faster(
    model_a: Annotated[str | None, typer.Argument(metavar="A", help="A model.")] = None,
    model_b: Annotated[
        str | None, typer.Argument(metavar="B", help="Another one (default: every other one).")
    ] = None,
    *,
    users: Annotated[
        Path | None,
        typer.Option(help="CSV file with the columns device and share: who has which device."),
    ] = None,
    here: Annotated[
        str | None,
        typer.Option(
            help="Device, device model or platform where you ask, or a pattern with * (default: "
            "yours with most models)."
        ),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(help="Only these others: device, device model, platform or pattern with *."),
    ] = None,
    margin: Annotated[
        float, typer.Option(parser=share, metavar="SHARE", help="Difference that counts as equal.")
    ] = ORDER_MARGIN,
    memory: Annotated[
        bool, typer.Option("--memory", help="Compare peak memory in place of latency.")
    ] = False,
    energy: Annotated[
        bool, typer.Option("--energy", help="Compare energy in place of latency.")
    ] = False,
    explain: Explain = False,
    as_json: AsJson = False,
    now: Now = False,
    view: TableView,
    selectors: Selectors,
) -> None:
    """Is the model that is faster here also faster on the devices of your users?

    With A alone it compares A with every other model; without both it lists the pairs whose order
    is reversed on some platform. --runtime and --precision choose the other platforms.

    `fleetrank report show pairs` prints the same as a table and accepts all selectors.
    """
    settle_workspace()
    if memory and energy:
        raise UsageError("--memory and --energy exclude each other", "ask twice, with one of them")
    settings = {
        "margin": f"{margin:g}",
        "model_a": model_a or "",
        "model_b": model_b or "",
        "quantity": "memory" if memory else "energy" if energy else "latency",
    }
    chosen = selectors.model_copy(
        update={
            "source": here,
            "target": on,
            "settings": tuple(f"{name}={value}" for name, value in settings.items()),
        }
    )
    if model_a is None or model_b is None:
        if users is not None:
            raise UsageError("--users needs two models", "name both: fleetrank faster A B")
        table = selected_table("pairs", chosen, now=now)
        print_in_form(
            table,
            Form.JSON if as_json else Form.TABLE,
            is_explained=explain,
            view=view,
            full="--json",
        )
        return
    answer = _answer(model_a, model_b, users, chosen, now=now)
    if as_json:
        print(json_text(asdict(answer), indent=2))
        return
    _print(answer, view, is_explained=explain)


def _answer(a: str, b: str, users: Path | None, selectors: Selectors, *, now: bool) -> "PairAnswer":
    from fleetrank.analysis.statistics.pairs import faster as answer
    from fleetrank.orchestrator.workspace.device_registry import read_device_files
    from fleetrank.orchestrator.workspace.user_shares import read_shares

    shares = None if users is None else read_shares(users)
    registered = read_device_files(current().workspace).values()
    devices = [one.name for one in registered if one.traits.origin is Origin.MEASURED]
    with selected_session("pairs", selectors, now=now) as session:
        return answer(session, a, b, users=shares, devices=devices)


_SHOWN = (
    "label", "order", "ratio", "low", "high", "value_a", "value_b", "unit", "probability",
    "probability_low", "probability_high",
)  # fmt: skip


def _print(answer: "PairAnswer", view: TableView, *, is_explained: bool) -> None:
    """The answer first, then the platforms."""
    from fleetrank.analysis.statistics.pair_answer import pair_sentences
    from fleetrank.analysis.statistics.pairs import pair_table

    for sentence in pair_sentences(answer):
        print(wrapped(sentence))
    print()
    table = in_options(pair_table(answer))
    frame = table.frame
    if not view.columns:
        shown = [name for name in _SHOWN if frame[name].null_count() < frame.height]
        frame = frame.select(shown)
    title = f"a is {answer.here.model_a}, b is {answer.here.model_b}"
    table = replace(table, title=title, frame=frame, notes=())
    print_in_form(table, Form.TABLE, is_explained=is_explained, view=view, full="--json")
