"""The option `--workload` of commands that make or look for files."""

from typing import Annotated

import typer

from fleetrank.foundation.inputs.workload import Workload


def _read(text: str) -> Workload:
    try:
        return Workload.parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


WorkloadsOption = Annotated[
    list[Workload] | None,
    typer.Option(
        "--workload",
        parser=_read,
        metavar="WORKLOAD",
        help="Of language models, such as decode@512; may be repeated.",
    ),
]
