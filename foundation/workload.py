"""What one inference of a model does: an image, a prompt, one step of generation.

A workload is written as text: `image`, `prefill@128`, `decode@512`, `generate@128+32`,
`encode@128`, `segment@64+k8+n16`, or for one step of training `train@8`, `train@8+adamw`,
`train@8x128`. It is part of a cell and of its exported file, not of a platform.
"""

import re
from dataclasses import dataclass

from fleetrank.foundation.vocabulary import Words
from fleetrank.foundation.wording import did_you_mean

LARGEST_LENGTH = 10**6
"""Tokens; longer contexts than any published model has."""
USUAL_SENSORY, USUAL_MEMORIES = 32, 300
"""Of `segment`. Source: He et al. 2024 (arXiv 2405.06067): k and N of its experiments."""
MEMORY_PLACES = 2
"""Positions that the recalled memory takes, one before and one after the tokens."""
_SHOWN = 30
"""Letters of a wrong workload in a message."""
TOKENS, CONTEXT = "tokens", "context"
"""Axes of a language model's inputs: the sizes of both follow from the workload."""


class WorkloadKind(Words):
    """The kinds of one inference."""

    IMAGE = "image"
    """One inference on the inputs of the model: of all models that do not take tokens."""
    PREFILL = "prefill"
    """`prefill@T`: T tokens into an empty cache of T slots; the logits of the last one."""
    DECODE = "decode"
    """`decode@C`: one token at the last slot of a cache of C slots, all filled."""
    GENERATE = "generate"
    """`generate@P+N`: a prompt of P tokens, then N - 1 steps, in a cache of P + N slots."""
    SEGMENT = "segment"
    """`segment@L`, `segment@L+kK+nN`: the next L tokens of a long text, with the last K tokens
    before them and N memories of what came earlier; the logits of the last token."""
    ENCODE = "encode"
    """`encode@T`: one forward pass of an encoder or classifier over T tokens."""
    TRAIN = "train"
    """`train@B`, `train@BxT`: a step of training on B images, or on B sequences of T tokens."""
    SCORE = "score"
    """`score@T`, `score@T+kK+nN`: as `prefill@T` or `segment@T+kK+nN`, with the logits of every
    token. For `fleetrank eval` only: no card has it, so it is not measured."""


class Optimizer(Words):
    """How a step of training changes the weights."""

    SGD = "sgd"
    """Stochastic gradient descent with momentum; what `train@B` says without a name."""
    ADAMW = "adamw"

    @property
    def states(self) -> int:
        """Tensors as large as the weights that it keeps: momentum, or two moments."""
        return 1 if self is Optimizer.SGD else 2


_LENGTH = r"(?P<length>[1-9]\d{0,6})"
_SENSORY, _MEMORIES = r"\+k(?P<sensory>0|[1-9]\d{0,6})", r"\+n(?P<memories>0|[1-9]\d{0,6})"
_FORMS = {
    WorkloadKind.IMAGE: re.compile("image"),
    WorkloadKind.PREFILL: re.compile(f"prefill@{_LENGTH}"),
    WorkloadKind.DECODE: re.compile(f"decode@{_LENGTH}"),
    WorkloadKind.GENERATE: re.compile(rf"generate@{_LENGTH}\+(?P<generated>[1-9]\d{{0,6}})"),
    WorkloadKind.SEGMENT: re.compile(f"segment@{_LENGTH}(?:{_SENSORY})?(?:{_MEMORIES})?"),
    WorkloadKind.ENCODE: re.compile(f"encode@{_LENGTH}"),
    WorkloadKind.TRAIN: re.compile(
        rf"train@(?P<batch>[1-9]\d{{0,6}})(?:x{_LENGTH})?(?:\+(?P<optimizer>adamw))?"
    ),
    WorkloadKind.SCORE: re.compile(f"score@{_LENGTH}(?:{_SENSORY}{_MEMORIES})?"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One workload; `str` gives its text.

    Attributes:
        length: tokens of the prompt, of the segment, of the encoded text or of a sequence to train
            on; slots of the cache for `decode`; `None` for images.
        generated: tokens made after the prompt, the first one by the prompt itself; `None` unless
            the kind is `generate`.
        batch: samples in one step of `train`; `None` for all others, where the sweep chooses it.
        optimizer: of `train`; `None` for all others.
        sensory: of `segment`, tokens before the segment that are read again; 0 for none. `None` for
            all others but a `score` of segments.
        memories: of the same, vectors that stand for earlier segments; 0 for none.
    """

    kind: WorkloadKind = WorkloadKind.IMAGE
    length: int | None = None
    generated: int | None = None
    batch: int | None = None
    optimizer: Optimizer | None = None
    sensory: int | None = None
    memories: int | None = None

    @classmethod
    def parse(cls, text: str) -> "Workload":
        """Reads the text of a workload.

        Raises:
            ValueError: the text does not have a known form; the message lists them.
        """
        for kind, form in _FORMS.items():
            if (match := form.fullmatch(text)) is not None:
                found = match.groupdict()
                name = found.pop("optimizer", None)
                sizes = {key: int(size) for key, size in found.items() if size is not None}
                if max(sizes.values(), default=0) > LARGEST_LENGTH:
                    break
                is_train = kind is WorkloadKind.TRAIN
                optimizer = Optimizer(name or Optimizer.SGD) if is_train else None
                if kind is WorkloadKind.SEGMENT:
                    sizes = {"sensory": USUAL_SENSORY, "memories": USUAL_MEMORIES} | sizes
                return cls(kind=kind, optimizer=optimizer, **sizes)
        name = text[:_SHOWN]
        raise ValueError(
            f"unknown workload {name!r}: {did_you_mean(name.partition('@')[0], WorkloadKind)}give "
            "image, prefill@128, decode@512, generate@128+32, encode@128, segment@64+k8+n16 or "
            f"train@8x128+adamw; numbers up to {LARGEST_LENGTH:,}"
        )

    def __str__(self) -> str:
        """The text that `parse` reads."""
        if self.kind is WorkloadKind.TRAIN:
            tokens = "" if self.length is None else f"x{self.length}"
            name = "" if self.optimizer is Optimizer.SGD else f"+{self.optimizer}"
            return f"{self.kind.value}@{self.batch}{tokens}{name}"
        if self.length is None:
            return str(self.kind)
        tail = "" if self.generated is None else f"+{self.generated}"
        is_score = self.kind is WorkloadKind.SCORE
        if self.sensory is not None and (is_score or self.sensory != USUAL_SENSORY):
            tail += f"+k{self.sensory}"
        if self.memories is not None and (is_score or self.memories != USUAL_MEMORIES):
            tail += f"+n{self.memories}"
        return f"{self.kind.value}@{self.length}{tail}"

    @property
    def sort_key(self) -> tuple[int, int, int, int, str]:
        """By kind in the order above, then by sizes."""
        first, second = self.length or 0, self.generated or self.sensory or 0
        if self.batch is not None:
            first, second = self.batch, first
        kind = list(WorkloadKind).index(self.kind)
        return (kind, first, second, self.memories or 0, self.optimizer or "")

    @property
    def has_model_alone(self) -> bool:
        """Whether a file of it is the model and nothing else.

        A file of a memory has more weights, a file of `train` also the backward pass.
        """
        return self.kind is not WorkloadKind.TRAIN and not self.memories

    @property
    def prompt_tokens(self) -> int | None:
        """New tokens that one inference reads at once, of one sequence; `None` for images."""
        return 1 if self.kind is WorkloadKind.DECODE else self.length

    @property
    def context_tokens(self) -> int | None:
        """Slots of the cache of one sequence; `None` without one: images, `encode` and `train`.

        Of `segment`, positions that one pass takes: the segment, the tokens before it, and a vector
        of the memory before and after both.
        """
        if self.kind in {WorkloadKind.ENCODE, WorkloadKind.TRAIN} or self.length is None:
            return None
        if self.memories is not None:
            return self.length + (self.sensory or 0) + (MEMORY_PLACES if self.memories else 0)
        return self.length + (self.generated or 0)

    @property
    def summary_tokens(self) -> int | None:
        """Tokens of a segment from which its summary is made, the first half.

        `None` without a memory: nothing is summarised. Source: `segment_size // 2` in the code of
        He et al. 2024, github.com/OswaldHe/HMT-pytorch, `modeling_rmt/language_modeling.py`.
        """
        return max(1, (self.length or 0) // 2) if self.memories else None

    @property
    def axes(self) -> tuple[tuple[str, int], ...]:
        """Sizes of the axes `tokens` and `context`, sorted by name; empty for images.

        `generate` has those of its prompt.
        """
        sizes = ((CONTEXT, self.context_tokens), (TOKENS, self.prompt_tokens))
        return tuple((name, size) for name, size in sizes if size is not None)

    @property
    def steps(self) -> int | None:
        """Steps after the prompt of `generate`, which makes the first token; else `None`."""
        return None if self.generated is None else self.generated - 1

    @property
    def why_no_step(self) -> str | None:
        """Why `generate` measures nothing, or `None`: a sample is a step after the prompt."""
        if self.steps != 0:
            return None
        return f"{self} has no step after its prompt: use prefill@{self.length}"

    def tokens_per_sample(self, batch: int) -> int | None:
        """Tokens that one timed sample reads or makes, in all sequences of the batch.

        A sample of `generate` is one step, like one of `decode`. `None` for images.
        """
        if self.kind in {WorkloadKind.DECODE, WorkloadKind.GENERATE}:
            return batch
        return None if self.length is None else batch * self.length


IMAGE = Workload()
"""The workload of every model that does not take tokens, and of rows stored before workloads."""


def phase_of(workload: Workload) -> str:
    """Name of the graph that computes it, in a file with a graph of a prompt and one of a step.

    A `.tflite` file has signatures of these names, a `.pte` file methods.
    """
    kinds = WorkloadKind
    return str(kinds.DECODE if workload.kind is kinds.DECODE else kinds.PREFILL)


def step_of(workload: Workload) -> Workload:
    """The last kind of inference of a workload: of `generate` a step, of all others itself."""
    if workload.kind is not WorkloadKind.GENERATE:
        return workload
    return Workload(kind=WorkloadKind.DECODE, length=workload.context_tokens)
