"""The settings of single tables: their names, the words that they take, and their defaults.

To add one: write a `Setting` here, name it in its table's entry in `tables.TABLES`, and read it in
the table's function with `Setting.chosen` (words) or `stored.selection.setting` (numbers and
texts). A setting with words is then an option of `report show` and a field of the server's form.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.stored.selection import Selection, setting
from fleetrank.foundation.vocabulary import Problem
from fleetrank.foundation.wording import nearest


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting of a table, given as `set NAME=VALUE`.

    Attributes:
        meaning: what it does, as help and reference show it.
        words: the only values; empty for a number or a text, whose default the function has.
        default: one of the words; empty if the table shows all without the setting.
        is_many: takes several words, separated by commas.
        needs: another setting and the word that it must have; otherwise this one has no effect.
    """

    name: str
    meaning: str
    words: tuple[str, ...] = ()
    default: str = ""
    is_many: bool = False
    needs: "tuple[Setting, str] | None" = None

    def chosen(self, selection: Selection) -> str:
        """The user's word, or else the default; of many, separated by commas."""
        return setting(selection, self.name, self.default)

    def refuse_unknown(self, value: object) -> None:
        """Accepts the words only, if the setting has any.

        Raises:
            AnalysisError: the value is not one of the words; the remedy names the nearest.
        """
        given = str(value).split(",") if self.is_many else [str(value)]
        for word in given if self.words else ():
            if self.is_many and word.strip().replace(" ", "-") in ("", *self.words):
                continue
            if word not in self.words:
                near = nearest(word, self.words)
                hint = f"did you mean '{near}'? " if near else ""
                raise AnalysisError(
                    f"setting '{self.name}' has no value '{word}'",
                    f"{hint}it takes {', '.join(self.words)}",
                )


QUANTITY = Setting(
    name="quantity",
    meaning="what is shown of each cell",
    words=("latency", "memory", "coldstart"),
    default="latency",
)
PREDICTED = Setting(
    name="quantity",
    meaning="what is predicted",
    words=("latency", "memory", "energy"),
    default="latency",
)
COVERAGE = Setting(
    name="coverage", meaning="share of intervals that hold the measured value (default: 0.9)"
)
LIKE = Setting(
    name="like", meaning="a platform with the configuration of a device without measurements"
)
MODELS = Setting(name="models", meaning="models to list, separated by commas; * matches any text")
SCORE = Setting(
    name="score",
    meaning="FRM, or the composite scores of other authors",
    words=("frm", "composites"),
    default="frm",
)
BY_GROUP = Setting(
    name="by",
    meaning="rows between tiers, or between the runtimes of one device",
    words=("tier", "runtime"),
    default="tier",
)
DETAIL = Setting(
    name="detail",
    meaning="latency and FRM only, or also each part of FRM",
    words=("brief", "full"),
    default="brief",
)
METHOD = Setting(
    name="method",
    meaning="a line fitted to the other models, or the ratio of one reference model",
    words=("line", "ratio"),
    default="line",
)
BY_ROW = Setting(
    name="by",
    meaning="one row for each measure, or for each model",
    words=("measure", "model"),
    default="measure",
)
OWN = Setting(
    name="own",
    meaning="the best single device to own, or the fewest that predict all others",
    words=("one", "fewest"),
    default="one",
)
THRESHOLD = Setting(
    name="threshold",
    meaning="rho from which a device counts as predicted (default: 0.9)",
    needs=(OWN, "fewest"),
)
OVER = Setting(
    name="over",
    meaning="the models to measure on a new device, or the number of devices to measure",
    words=("models", "devices"),
    default="models",
)
K = Setting(name="k", meaning="number of models to measure (default: 3)", needs=(OVER, "models"))
PART = Setting(
    name="part",
    meaning="the components of variance, or what more sessions, repeats or devices would buy",
    words=("components", "plans"),
    default="components",
)
AXIS = Setting(
    name="over",
    meaning="only curves over this: samples in one inference, tokens, or pixels of images",
    words=("batch", "length", "input_size"),
)
CURVES = Setting(
    name="part",
    meaning="one row for each curve, or for each measured point",
    words=("curves", "points"),
    default="curves",
)
FILES = Setting(
    name="part",
    meaning="what the peak memory holds, or the sizes of exported files by format",
    words=("peaks", "files"),
    default="peaks",
)
FIELDS_OF_RUN = Setting(
    name="part",
    meaning="one row for each run, or for each field of each run",
    words=("runs", "fields"),
    default="runs",
)
TOP_K = Setting(name="k", meaning="how many of the fastest models count (default: 3)")
LIST = Setting(
    name="list",
    meaning="flags of each cell, attempts that no figure uses, findings of the audit, what the "
    "host did in rounds, or how long attempts waited for their device",
    words=("flags", "dropped", "findings", "host", "waits"),
    default="flags",
)
WHAT = Setting(
    name="what",
    meaning="only findings of this kind",
    words=tuple(kind.replace(" ", "-") for kind in Problem),
    is_many=True,
    needs=(LIST, "findings"),
)
OBJECTIVES = Setting(
    name="objectives",
    meaning="names separated by commas (default: accuracy,latency; of text quality,latency)",
)
BUDGETS = Setting(name="budgets_ms", meaning="latency budgets in ms, separated by commas")
FLOORS = Setting(name="floors_percent", meaning="accuracy floors in %, separated by commas")
MEMORY_BUDGETS = Setting(
    name="budgets_mib", meaning="memory budgets in MiB, separated by commas (default: no limit)"
)
GOAL = Setting(name="goal", meaning="one of the five goals, or the beginning of its name")
MODEL_A = Setting(name="model_a", meaning="first model; * matches any text")
MODEL_B = Setting(name="model_b", meaning="second model; * matches any text")
WITHIN = Setting(
    name="within", meaning="largest difference between the models of a pair, as a share"
)
MARGIN = Setting(
    name="margin", meaning="largest difference of no interest, as a share (default: 0.02)"
)
PROMPT = Setting(name="prompt", meaning="tokens of the prompt (default: 128)")
GENERATED = Setting(
    name="generated", meaning="tokens of the answer; the prompt gives the first one (default: 32)"
)
SPLIT = Setting(
    name="split",
    meaning="components by the path of their module, or by operator",
    words=("module", "operator"),
    default="module",
)
DEPTH = Setting(
    name="depth",
    meaning="parts of a module's path that name a component (default: 1)",
    needs=(SPLIT, "module"),
)
READING = Setting(
    name="part",
    meaning="time by way to read and length, the length from which on a way is faster than reading "
    "at once, whether that length ranks models alike on two platforms, or sizes of segments",
    words=("times", "crossover", "transfer", "sizes"),
    default="times",
)
STRIDE = Setting(
    name="stride",
    meaning="tokens between the starts of two windows (default: half of the window)",
)
TOKENS = Setting(
    name="tokens",
    meaning="further lengths of the text, separated by commas; measured ones are always shown",
    needs=(READING, "times"),
)
REFERENCE = Setting(
    name="reference",
    meaning="segment to compare with, such as segment@128 (default: the one with most memories)",
    needs=(READING, "sizes"),
)
FRM_WEIGHTS = ("weight_flops", "weight_latency", "weight_memory")


def frm_weights(chooser: Setting, word: str) -> tuple[Setting, ...]:
    """The weights of FRM's three parts, for a table that uses them only with one word."""
    return tuple(
        Setting(
            name=name,
            meaning=f"weight of {name.removeprefix('weight_')} in FRM (default: 1)",
            needs=(chooser, word),
        )
        for name in FRM_WEIGHTS
    )


def refuse_wrong_settings(table: str, known: Sequence[Setting], selection: Selection) -> None:
    """Accepts the settings that a table has, with the values that they take.

    Raises:
        AnalysisError: the table lacks a setting, the value is unknown, or the setting has no
            effect; the remedy says what to give.
    """
    by_name = {one.name: one for one in known}
    for name, value in selection.settings:
        if name not in by_name:
            near = nearest(name, by_name)
            hint = f"did you mean '{near}'? " if near else ""
            raise AnalysisError(
                f"table '{table}' has no setting '{name}'",
                hint + (f"it takes {', '.join(by_name)}" if known else "it takes none"),
            )
        by_name[name].refuse_unknown(value)
        needs = by_name[name].needs
        if needs is not None and needs[0].chosen(selection) != needs[1]:
            raise AnalysisError(
                f"setting '{name}' of table '{table}' has no effect with "
                f"{needs[0].name}={needs[0].chosen(selection)}",
                f"add `{needs[0].name}={needs[1]}`",
            )
