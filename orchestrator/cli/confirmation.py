"""What changes stored results asks first."""

import sys
from typing import Annotated

import typer

Yes = Annotated[bool, typer.Option("--yes", help="Do it; without it the plan is shown only.")]


def is_confirmed(question: str, is_sure: bool, as_json: bool) -> bool:
    """Whether to go on: `--yes`, or a person at a terminal who says so; else a hint."""
    if is_sure:
        return True
    if as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        print("this is the plan; --yes carries it out", file=sys.stderr)
        return False
    return typer.confirm(question)
