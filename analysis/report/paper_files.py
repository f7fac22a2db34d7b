"""Files of figures: each in two widths, with its caption as text and its points as CSV."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.report.charts import ONE_COLUMN_PX, TWO_COLUMNS_PX, Figure
from fleetrank.analysis.report.paper_figures import FIGURES, make_figure
from fleetrank.analysis.tables.formats import csv_text
from fleetrank.analysis.tables.indexed_files import write_indexed

_DRAWN: Mapping[str, Callable[[Figure], bytes]] = MappingProxyType(
    {"svg": lambda one: one.svg().encode(), "pdf": Figure.pdf, "png": Figure.png}
)
IMAGE_FORMS = tuple(_DRAWN)
INDEX = "fleetrank-figures.json"
_WIDTHS = {"": ONE_COLUMN_PX, "-wide": TWO_COLUMNS_PX}
"""The end of a file's name to its width: one column of a paper, or both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureFile:
    """One file of a figure in the index; a figure without files has the reason."""

    figure: str
    file: str | None = None
    sha256: str | None = None
    missing_because: str | None = None


def export_figures(
    session: Session,
    folder: Path,
    *,
    forms: Sequence[str] = ("pdf",),
    names: Sequence[str] = (),
    may_overwrite: bool = False,
) -> list[FigureFile]:
    """Writes figures as `write_indexed` does: `NAME.pdf`, `NAME-wide.pdf`, `NAME.txt`, `NAME.csv`.

    Args:
        session: the selected rows.
        folder: created if it is missing.
        forms: of `IMAGE_FORMS`.
        names: of `FIGURES`; empty for all.
        may_overwrite: also replace files that no export wrote.

    Raises:
        AnalysisError: no figure or form has the name, a foreign file would be replaced, or no
            figure can be made: then the reason of the first one.
        StorageError: the folder cannot be written.
    """
    for form in forms:
        if form not in IMAGE_FORMS:
            raise AnalysisError(f"no image format '{form}'", f"there are {', '.join(IMAGE_FORMS)}")
    why: AnalysisError | None = None
    entries, written = [], dict[str, bytes]()
    for name in names or FIGURES:
        entry = FigureFile(figure=name)
        try:
            files = _files(name, session, forms)
        except AnalysisError as error:
            if name not in FIGURES:
                raise
            why = why or error
            entries.append(replace(entry, missing_because=str(error)))
            continue
        written |= files
        entries += [
            replace(entry, file=file, sha256=hashlib.sha256(data).hexdigest())
            for file, data in files.items()
        ]
    if why is not None and not written:
        raise why
    write_indexed(folder / INDEX, written, map(asdict, entries), may_overwrite=may_overwrite)
    return entries


def _files(name: str, session: Session, forms: Sequence[str]) -> dict[str, bytes]:
    widths = {end: make_figure(name, session, width) for end, width in _WIDTHS.items()}
    images = {
        f"{name}{end}.{form}": _DRAWN[form](figure)
        for end, figure in widths.items()
        for form in forms
    }
    for end, one in widths.items():
        for kind, text in (("txt", one.caption), ("csv", csv_text(one.data))):
            data = text.encode()
            if data != images.get(f"{name}.{kind}"):  # only some figures show more where wide
                images[f"{name}{end}.{kind}"] = data
    return images
