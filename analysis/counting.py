"""Counts with their noun in sentences."""


def count_of(n: int, noun: str, plural: str | None = None) -> str:
    """`1 model`, `2 models`."""
    return f"{n} {noun}" if n == 1 else f"{n} {plural or noun + 's'}"
