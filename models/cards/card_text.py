"""A card as TOML text, which `user_cards` can read."""

import json
from dataclasses import asdict

from fleetrank.foundation.inputs.model_input import Values
from fleetrank.models.cards.card import ModelCard
from fleetrank.models.cards.inputs import CardInput


def card_text(card: ModelCard) -> str:
    """The card; keys without a value are left out."""
    fields = asdict(card)
    # The folder is the location of the card, not part of its content.
    for name in ("import_folder", "inputs", "axes", "workloads", "language"):
        del fields[name]
    if not card.is_fixed_size:
        del fields["is_fixed_size"]
    lines = [f"{name} = {_toml(value)}" for name, value in fields.items() if value is not None]
    if card.workloads and card.language is None:
        lines.append(f"workloads = {_toml(list(card.workloads))}")
    if card.axes:
        lines.append(f"axes = {_table(dict(card.axes))}")
    if card.language is not None:
        numbers = asdict(card.language).items()
        shape = [f"{name} = {_toml(value)}" for name, value in numbers if value is not None]
        return "\n".join([*lines, "\n[language]", *shape])
    return "\n".join([*lines, *(_input_text(one) for one in card.inputs)])


def _input_text(one: CardInput) -> str:
    values = _values(one.values, is_float=one.dtype.startswith("float"))
    lines = [
        "\n[[inputs]]",
        f"name = {_toml(one.name)}",
        f"shape = {_toml(list(one.shape))}",
        f"dtype = {_toml(one.dtype)}",
        *([] if values is None else [f"values = {_table(values)}"]),
        *([] if one.state is None else [f"state = {_toml(one.state)}"]),
    ]
    return "\n".join(lines)


def _values(values: Values, *, is_float: bool) -> dict[str, object] | None:
    if values.path is not None:
        return {"file": values.path}
    if values.counts_to is not None:
        return {"positions": values.counts_to}
    if values.low is None or values.high is None:
        return None
    if values.low == values.high:
        return {"constant": values.low}
    if values.low == 0 and not is_float:
        return {"below": int(values.high) + 1}
    return {"range": [values.low, values.high]}


def _table(content: dict[str, object]) -> str:
    return f"{{ {', '.join(f'{name} = {_toml(value)}' for name, value in content.items())} }}"


def _toml(value: object) -> str:
    """TOML writes text, numbers and lists of them as JSON does."""
    return json.dumps(value, ensure_ascii=False)
