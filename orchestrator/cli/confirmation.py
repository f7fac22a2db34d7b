"""Asks the user before a command changes stored results."""

import sys
from typing import Annotated

import typer

Yes = Annotated[
    bool, typer.Option("--yes", help="Carry out the plan. Without it the plan is only shown.")
]


def is_confirmed(question: str, is_sure: bool, as_json: bool) -> bool:
    """Whether the user agreed, by `--yes` or at a terminal; otherwise prints a hint."""
    if is_sure:
        return True
    if as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        print("This is the plan. Add --yes to carry it out.", file=sys.stderr)
        return False
    return typer.confirm(question)
