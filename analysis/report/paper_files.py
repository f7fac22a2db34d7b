"""Files of figures: each in two widths, with its caption as text and its points as CSV."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from fleetrank.analysis.errors import AnalysisError
from fleetrank.analysis.panel.session import Session
from fleetrank.analysis.report.charts import IMAGES, ONE_COLUMN_PX, TWO_COLUMNS_PX
from fleetrank.analysis.report.paper_figures import FIGURES, make_figure
from fleetrank.analysis.tables.formats import csv_text
from fleetrank.analysis.tables.indexed_files import ExportedFile, write_indexed

INDEX = "fleetrank-figures.json"
_WIDTHS = {"": ONE_COLUMN_PX, "-wide": TWO_COLUMNS_PX}
"""The end of a file's name to its width: one column of a paper, or both."""


def export_figures(
    session: Session,
    folder: Path,
    *,
    forms: Sequence[str] = ("pdf",),
    names: Sequence[str] = (),
    may_overwrite: bool = False,
) -> list[ExportedFile]:
    """Writes figures as `write_indexed` does: `NAME.pdf`, `NAME-wide.pdf`, `NAME.txt`, `NAME.csv`.

    Args:
        session: the selected rows.
        folder: created if it is missing.
        forms: of `IMAGES`.
        names: of `FIGURES`; empty for all.
        may_overwrite: also replace files that no export wrote.

    Raises:
        AnalysisError: no figure or form has the name, a foreign file would be replaced, or no
            figure can be made: then the reason of the first one.
        StorageError: the folder cannot be written.
    """
    for form in forms:
        if form not in IMAGES:
            raise AnalysisError(f"no image format '{form}'", f"there are {', '.join(IMAGES)}")
    contents: list[tuple[ExportedFile, bytes]] = []
    why: AnalysisError | None = None
    for name in names or FIGURES:
        try:
            contents += _files(name, session, forms)
        except AnalysisError as error:
            if name not in FIGURES:
                raise
            why = why or error
            contents.append((ExportedFile(request=name, missing_because=str(error)), b""))
    if why is not None and not any(entry.file for entry, _ in contents):
        raise why
    return write_indexed(folder / INDEX, contents, may_overwrite=may_overwrite)


def _files(
    name: str, session: Session, forms: Sequence[str]
) -> Iterator[tuple[ExportedFile, bytes]]:
    texts: dict[str, bytes] = {}
    for end, width in _WIDTHS.items():
        figure = make_figure(name, session, width)
        for form in forms:
            file = f"{name}{end}.{form}"
            yield ExportedFile(request=name, file=file), IMAGES[form](figure)
        for kind, text in (("txt", figure.caption), ("csv", csv_text(figure.data))):
            data = text.encode()
            if texts.setdefault(kind, data) == data and end:
                continue  # only some figures show more where they are wide
            yield ExportedFile(request=name, file=f"{name}{end}.{kind}"), data
