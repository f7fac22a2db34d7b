"""A figure over time as SVG, drawn on the server: no script, and it prints."""

from dataclasses import dataclass
from datetime import datetime

WIDTH, HEIGHT = 520, 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 8, 8, 10, 22
_MAX_MARKS = 120
"""More marks would overlap; the line has all points."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One point; `label` is shown on hover."""

    x: float
    y: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeChart:
    """A chart for the template; the template escapes every text."""

    title: str
    unit: str
    line: str
    marks: tuple[Mark, ...]
    low: str
    high: str
    first: str
    last: str
    width: int = WIDTH
    height: int = HEIGHT


def time_chart(title: str, unit: str, points: list[tuple[str, float]]) -> TimeChart:
    """Places points of (ISO time, value) on the chart; at least one point, oldest first."""
    times = [datetime.fromisoformat(time) for time, _ in points]
    values = [value for _, value in points]
    span_s = (times[-1] - times[0]).total_seconds() or 1.0
    low, high = min(values), max(values)
    placed = [
        Mark(
            x=round(_LEFT + (time - times[0]).total_seconds() / span_s * _inner_width(), 1),
            y=round(_TOP + (1 - _share(value, low, high)) * _inner_height(), 1),
            label=f"{value:.4g} {unit}, {time:%Y-%m-%d %H:%M:%S} UTC",
        )
        for time, value in zip(times, values, strict=True)
    ]
    return TimeChart(
        title=title,
        unit=unit,
        line=" ".join(f"{mark.x},{mark.y}" for mark in placed),
        marks=tuple(placed[:: max(1, -(-len(placed) // _MAX_MARKS))]),
        low=f"{low:.4g}",
        high=f"{high:.4g}",
        first=f"{times[0]:%Y-%m-%d %H:%M}",
        last=f"{times[-1]:%Y-%m-%d %H:%M}",
    )


def _share(value: float, low: float, high: float) -> float:
    """Returns the y position of a value; a constant series is in the middle."""
    return 0.5 if high == low else (value - low) / (high - low)


def _inner_width() -> int:
    return WIDTH - _LEFT - _RIGHT


def _inner_height() -> int:
    return HEIGHT - _TOP - _BOTTOM
