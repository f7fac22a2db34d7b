"""`fleetrank faster`: is the model that is faster here also faster on the devices of users?"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import polars as pl
import typer

from fleetrank.analysis.stored.selection import MARGIN
from fleetrank.foundation.strict_json import json_text
from fleetrank.foundation.vocabulary import Form, Origin
from fleetrank.orchestrator.cli.context import Now, current, settle_workspace
from fleetrank.orchestrator.cli.listing import AsJson, TableView, with_view
from fleetrank.orchestrator.cli.options import share
from fleetrank.orchestrator.cli.report_command import (
    in_options,
    print_in_form,
    selected_session,
    selected_table,
    wrapped,
)
from fleetrank.orchestrator.cli.selector_options import Explain, with_selectors
from fleetrank.orchestrator.cli.sweep_display import EXIT_SLOWER, fleetrank_command
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.workspace.selectors import Selectors
from fleetrank.orchestrator.workspace.user_shares import read_shares

if TYPE_CHECKING:
    from fleetrank.analysis.statistics.pairs.pair_answer import PairAnswer
    from fleetrank.analysis.tables.table import Table

    Said = tuple[tuple[str, ...], Table]

Shares = Mapping[str, float] | None


@with_view
@with_selectors(
    "sweep", "runtime", "precision", "family", "workload", "include_simulated",
    "allow_unlike_border", "seed",
)  # fmt: skip
def faster(
    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="MODEL", help="A, B, ...; A:int8 is A in one precision."),
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
    ] = MARGIN,
    memory: Annotated[
        bool, typer.Option("--memory", help="Compare peak memory in place of latency.")
    ] = False,
    energy: Annotated[
        bool, typer.Option("--energy", help="Compare energy in place of latency.")
    ] = False,
    fail_if: Annotated[
        Literal["reversed", "undecided"] | None,
        typer.Option(
            help="Exit code 5 if the order of two models is reversed on another device, or also if "
            "it is undecided there or here."
        ),
    ] = None,
    explain: Explain = False,
    as_json: AsJson = False,
    now: Now = False,
    view: TableView,
    selectors: Selectors,
) -> None:
    """Is the model that is faster here also faster on the devices of your users?

    With A alone it compares A with every other model; without a model it lists the pairs whose
    order is reversed on some platform; of three or more it shows the fastest on each platform.
    --runtime and --precision choose the other platforms.

    `fleetrank report show pairs` prints the same as a table and accepts all selectors.
    """
    settle_workspace()
    names = models or []
    _refuse_wrong(names, users=users, here=here, is_both=memory and energy, fail_if=fail_if)
    named = {"models": ",".join(names)} if len(names) > 2 else zip(_PAIR, names, strict=False)
    settings = {
        "margin": f"{margin:g}",
        "quantity": "memory" if memory else "energy" if energy else "latency",
    } | dict(named)
    chosen = selectors.model_copy(
        update={
            "source": here,
            "target": on,
            "settings": tuple(f"{name}={value}" for name, value in settings.items()),
        }
    )
    shares = None if users is None else read_shares(users)
    sentences: tuple[str, ...] = ()
    code = 0
    if len(names) < 2:
        table = selected_table("pairs", chosen, now=now)
    elif len(names) > 2:
        sentences, table = _of_several(shares, chosen, now=now)
    else:
        answer = _answer(names, shares, chosen, has_gap=explain or as_json, now=now)
        from fleetrank.analysis.statistics.pairs.pair_answer import holds

        code = 0 if fail_if is None or holds(answer, fail_if) else EXIT_SLOWER
        if as_json:
            print(json_text(asdict(answer), indent=2))
            raise typer.Exit(code)
        sentences, table = _of_pair(answer, is_chosen=here is not None)
    if as_json:
        table = replace(table, notes=(*table.notes, *sentences))
    elif sentences:
        from fleetrank.analysis.stored.cell_notes import is_banner

        print("\n".join(map(wrapped, sentences)), end="\n\n")
        table = replace(table, notes=tuple(filter(is_banner, table.notes)))
    print_in_form(
        table,
        Form.JSON if as_json else Form.TABLE,
        is_explained=explain,
        view=view,
        full="--json",
    )
    raise typer.Exit(code)


_PAIR = ("model_a", "model_b")


def _refuse_wrong(
    names: Sequence[str],
    *,
    users: Path | None,
    here: str | None,
    is_both: bool,
    fail_if: str | None,
) -> None:
    if is_both:
        raise UsageError("--memory and --energy exclude each other", "ask twice, with one of them")
    if users is not None and len(names) < 2:
        raise UsageError("--users needs two models", "name both: fleetrank faster A B")
    if fail_if and len(names) != 2:
        raise UsageError("--fail-if needs two models", "name both: fleetrank faster A B")
    if here is not None and len(names) > 2:
        raise UsageError("--here is for two models", "omit it, or name two models")


def _answer(
    names: Sequence[str], shares: Shares, selectors: Selectors, *, has_gap: bool, now: bool
) -> "PairAnswer":
    from fleetrank.analysis.statistics.pairs.pairs import faster as answer

    devices: list[str] = []
    workspace = current().workspace
    if any(workspace.devices.glob("*.yaml")):
        from fleetrank.orchestrator.workspace.device_registry import read_device_files  # slow

        registered = read_device_files(workspace).values()
        devices += [one.name for one in registered if one.traits.origin is Origin.MEASURED]
    with selected_session("pairs", selectors, now=now) as session:
        return answer(session, *names, users=shares, devices=devices, has_gap=has_gap)


def _of_several(shares: Shares, selectors: Selectors, *, now: bool) -> "Said":
    from fleetrank.analysis.statistics.pairs.fastest import fastest

    with selected_session("pairs/fastest", selectors, now=now) as session:
        sentences, table = fastest(session, shares)
    return sentences, in_options(table)


_SHOWN = (
    "label", "order", "ratio", "interval", "value_a", "value_b", "unit", "probability",
    "probability_interval",
)  # fmt: skip


def _of_pair(answer: "PairAnswer", *, is_chosen: bool) -> "Said":
    """The answer, and a table of its platforms."""
    from fleetrank.analysis.statistics.pairs.pair_answer import pair_sentences
    from fleetrank.analysis.statistics.pairs.pair_orders import LISTED
    from fleetrank.analysis.statistics.pairs.pairs import pair_table

    a, b = answer.here.model_a, answer.here.model_b
    step = answer.next_step
    if step is not None and step.command is not None:
        command = fleetrank_command(*shlex.split(step.command)[1:])
        answer = replace(answer, next_step=replace(step, command=command))
    first, *sentences = pair_sentences(answer)
    if answer.origin == Origin.IMPORTED and not is_chosen:
        sentences.insert(
            0,
            "The start is a published platform, because you have not measured both: --here chooses "
            "another one, `fleetrank run` measures on this machine.",
        )
    if all(one.device == answer.here.device for one in answer.targets):
        sentences.insert(
            0,
            "Nothing is stored of other devices: `fleetrank results import --from demo` brings "
            "published ones, `fleetrank devices list --found` shows phones to register.",
        )
    table = in_options(pair_table(answer))
    at = pl.col("order").cast(pl.Enum([*map(str, LISTED)]), strict=False)
    frame = table.frame.sort(at, "ratio", nulls_last=True)
    return (first, *sentences), replace(
        table, title=f"a is {a}, b is {b}", frame=frame, columns=_SHOWN
    )
