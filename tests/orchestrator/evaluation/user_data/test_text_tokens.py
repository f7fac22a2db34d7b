"""Tokenizers that the tests train themselves."""

from pathlib import Path

import pytest
import sentencepiece
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers

from fleetrank.orchestrator.errors import UsageError
from fleetrank.orchestrator.evaluation.choice_tasks import Question, choice_windows
from fleetrank.orchestrator.evaluation.user_data import DataChild, open_tokenizer, refuse_unfit

TEXT = "the quick brown fox jumps over the lazy dog " * 30


def _json(folder: Path, *, adds_start: bool) -> Path:
    opened = Tokenizer(models.BPE())
    opened.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    opened.train_from_iterator([TEXT], trainers.BpeTrainer(special_tokens=["<s>", "</s>"]))
    if adds_start:
        opened.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", 0)]
        )
    opened.enable_truncation(4)
    opened.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


def test_bytes_need_no_file(here: DataChild) -> None:
    found = open_tokenizer("bytes", here)
    assert found.encode("ä") == [195, 164]
    assert (found.size, found.sha256, found.leads) == (256, None, False)


@pytest.mark.parametrize("adds_start", [False, True])
def test_a_json_file_gives_tokens_without_special_ones(
    tmp_path: Path, here: DataChild, adds_start: bool
) -> None:
    path = _json(tmp_path, adds_start=adds_start)
    found = open_tokenizer(str(path), here)
    assert open_tokenizer(str(tmp_path), here).sha256 == found.sha256
    assert (found.prefix, found.leads) == (0, adds_start)
    tokens = found.encode("the quick brown fox jumps over")
    # The file cuts after 4 tokens; an evaluation must not.
    assert len(tokens) > 4
    assert 0 not in tokens
    windows = choice_windows(
        Question(context="the dog:", choices=("fox", "dog"), label=0), found, 64
    )
    assert all((one.tokens[0] == 0) is adds_start for one in windows)


def test_a_sentencepiece_model_gives_tokens(tmp_path: Path, here: DataChild) -> None:
    source = tmp_path / "text.txt"
    source.write_text("\n".join(TEXT.split(" fox ")))
    sentencepiece.SentencePieceTrainer.train(
        input=str(source), model_prefix=str(tmp_path / "tokenizer"), vocab_size=40,
        model_type="bpe", minloglevel=2,
    )  # fmt: skip
    found = open_tokenizer(str(tmp_path), here)
    assert (found.size, found.prefix, found.leads) == (40, 1, True)
    assert all(2 < one < 40 for one in found.encode("the lazy dog"))


def test_a_tokenizer_that_does_not_fit_the_model_is_refused(
    tmp_path: Path, here: DataChild
) -> None:
    found = open_tokenizer(str(_json(tmp_path, adds_start=False)), here)
    refuse_unfit(found, found.size, "tiny")
    with pytest.raises(UsageError, match=r"tiny") as caught:
        refuse_unfit(found, found.size - 1, "tiny")
    assert f"ids up to {found.size - 1:,}" in caught.value.message


def test_a_tokenizer_with_holes_is_as_large_as_its_largest_id(
    tmp_path: Path, here: DataChild
) -> None:
    opened = Tokenizer(models.WordLevel({"the": 0, "fox": 700}, unk_token="the"))
    opened.save(str(tmp_path / "tokenizer.json"))
    found = open_tokenizer(str(tmp_path), here)
    assert found.encode("fox") == [700]
    refuse_unfit(found, 701, "tiny")
    with pytest.raises(UsageError, match="ids up to 700"):
        refuse_unfit(found, 700, "tiny")


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer.model", "missing.json"])
def test_what_is_no_tokenizer_is_named(tmp_path: Path, here: DataChild, name: str) -> None:
    if not name.startswith("missing"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(UsageError, match="not a tokenizer") as caught:
        open_tokenizer(str(tmp_path / name), here)
    assert name in caught.value.message
