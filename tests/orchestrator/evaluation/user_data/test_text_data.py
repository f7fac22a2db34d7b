"""Texts and examples in their published forms, and what is wrong with others."""

from pathlib import Path

import polars as pl
import pytest

from fleetrank.foundation.errors import FleetError
from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.evaluation.choice_tasks import read_questions
from fleetrank.orchestrator.evaluation.text_data import read_text_data


def test_a_text_keeps_the_ends_of_its_lines(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes("naïve\r\n東京\u2028end".encode())
    assert read_text_data(file).documents == ("naïve\r\n東京\u2028end",)


def test_a_folder_lines_and_rows_are_documents(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("two")
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "empty.txt").write_text("")
    assert read_text_data(tmp_path).documents == ("one", "two")
    lines = tmp_path / "x.jsonl"
    lines.write_text('{"text": "a\u2028b"}\n\n{"text": "c"}\n')
    assert read_text_data(lines).documents == ("a\u2028b", "c")
    pl.DataFrame({"page": ["p", "q"]}).write_parquet(tmp_path / "x.parquet")
    assert read_text_data(tmp_path / "x.parquet", "page").documents == ("p", "q")


def test_the_checksum_of_a_folder_covers_names_and_contents(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    before = read_text_data(tmp_path).sha256
    (tmp_path / "a.txt").rename(tmp_path / "b.txt")
    renamed = read_text_data(tmp_path).sha256
    (tmp_path / "b.txt").write_text("two")
    assert len({before, renamed, read_text_data(tmp_path).sha256}) == 3


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", b"", "no text"),
        ("a.txt", b"\xff", "not UTF-8"),
        ("a.jsonl", b'{"txt": "a"}', "row 1 has no text"),
        ("a.jsonl", b"[1]", "line 1 is not a JSON object"),
        ("a.jsonl", b'{"text": "a"}\n{', "line 2 is not JSON"),
        ("a.parquet", b"PAR1", "not a Parquet file"),
        ("b.txt/c.txt", None, "does not exist"),
    ],
)
def test_what_is_no_text_is_named(
    tmp_path: Path, name: str, content: bytes | None, said: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(FleetError, match=said) as caught:
        read_text_data(tmp_path / name)
    assert caught.value.remedy


FORMS = {
    "sst2": [
        ("a.tsv", 'sentence\tlabel\na "great film\t1\ndull\t0\n'),
        (
            "b.jsonl",
            '{"sentence": "a \\"great film", "label": 1}\n{"sentence": "dull", "label": 0}',
        ),
    ],
    "rte": [
        (
            "a.tsv",
            "index\tsentence1\tsentence2\tlabel\n0\tIt rains.\tIt is wet.\tentailment\n"
            "1\tIt rains.\tIt is dry.\tnot_entailment\n",
        ),
        (
            "b.jsonl",
            '{"premise": "It rains.", "hypothesis": "It is wet.", "label": 0}\n'
            '{"premise": "It rains.", "hypothesis": "It is dry.", "label": "not_entailment"}',
        ),
    ],
    "boolq": [
        (
            "a.jsonl",
            '{"question": "is it", "title": "t", "answer": true, "passage": "p"}\n'
            '{"question": "is it", "title": "t", "answer": false, "passage": "q"}',
        ),
        (
            "b.jsonl",
            '{"question": "is it", "label": 1, "passage": "p"}\n'
            '{"question": "is it", "label": 0, "passage": "q"}',
        ),
    ],
    "mrpc": [
        (
            "a.tsv",
            '\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\tIt is.\tIt "is.\n'
            "0\t7\t8\tIt is.\tNo.\n",
        ),
        (
            "b.jsonl",
            '{"sentence1": "It is.", "sentence2": "It \\"is.", "label": 1}\n'
            '{"sentence1": "It is.", "sentence2": "No.", "label": 0}',
        ),
    ],
}


@pytest.mark.parametrize("task", FORMS)
def test_published_forms_of_a_data_set_give_equal_questions(tmp_path: Path, task: str) -> None:
    read = []
    for name, content in FORMS[task]:
        (tmp_path / name).write_text(content, encoding="utf-8")
        read.append(read_questions(task, tmp_path / name))
    assert read[0] == read[1]
    assert {one.label for one in read[0]} == {0, 1}
    assert all(one.context.endswith(":") for one in read[0])
    frame = pl.read_ndjson(tmp_path / FORMS[task][1][0], infer_schema_length=None)
    if frame.schema.get("label") == pl.Int64:
        frame.write_parquet(tmp_path / "c.parquet")
        assert read_questions(task, tmp_path / "c.parquet") == read[0]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.tsv", "sentence\tlabel\n", "no row"),
        ("a.tsv", "text\tlabel\nx\t1\n", "no sentence"),
        ("a.tsv", "sentence\tlabel\nx\t-1\n", "label '-1'"),
        ("a.csv", "sentence,label\nx,1\n", "unknown format"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, name: str, content: str, said: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(UsageError, match=said):
        read_questions("sst2", tmp_path / name)
