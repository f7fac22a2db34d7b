"""The built-in decoder as a reader of long texts, segment by segment, with a memory.

The Hierarchical Memory Transformer of He et al. 2024 (arXiv 2405.06067), as its authors' code has
it (github.com/OswaldHe/HMT-pytorch, `modeling_rmt`). Left out is what the paper does not have:
further tokens that are read in its test mode, and a map of memories at a change of topic.
"""

import torch
from torch import Tensor, nn

from fleetrank.foundation.workload import Workload
from fleetrank.models.cards.language import RECALL_WIDTH, LanguageShape
from fleetrank.models.networks.decoder import Decoder, causal_mask
from fleetrank.models.networks.language_blocks import LayerContext, initialise


class SegmentReader(Decoder):
    """A decoder that reads the next tokens of a text; `segment_inputs` names its tensors.

    Beside its `memory` it has the weights of `Decoder`, and for one seed the same values.
    """

    def __init__(self, shape: LanguageShape, workload: Workload) -> None:
        super().__init__(shape)
        self.sensory, self.summary_tokens = workload.sensory or 0, workload.summary_tokens
        self.memory = SegmentMemory(shape.table_width) if workload.memories else None

    def forward(self, tokens: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        """Reads a segment and gives the logits of its last token, or of every one.

        Args:
            tokens: (batch, L), the segment.
            states: `sensory` (batch, K), the tokens before it, unless K is 0; then `memories`
                (batch, N, table_width), oldest first, unless N is 0. Memories of zeros are empty.

        Returns:
            Logits as those of `Decoder`, then the states for the next segment: its K tokens before,
            and the memories with that of this segment instead of the oldest.
        """
        length = tokens.shape[1]
        given = list(states)
        ids = torch.cat([given.pop(0), tokens], dim=1) if self.sensory else tokens
        # A part of `ids`, not of `tokens`: a runtime may write it where `sensory` is still read.
        sensory = (ids[:, -self.sensory :],) if self.sensory else ()
        x = self.embedding.tokens(ids)
        if self.memory is None:
            seen = self._pass(x)[:, -length:]
            return (self._head(self._outcome(self._scored(seen))), *sensory)
        (memories,) = given
        summary = self._summary(tokens[:, : self.summary_tokens], self.memory.question)
        prompt = self.memory(summary, memories)
        seen = self._pass(torch.cat([prompt, x, prompt], dim=1))
        new = self._outcome(seen[:, -1:])
        logits = self._head(self._outcome(self._scored(seen[:, -1 - length : -1])))
        return (logits, *sensory, torch.cat([memories[:, 1:], new], dim=1))

    def _scored(self, seen: Tensor) -> Tensor:
        return seen if self.scores_every_token else seen[:, -1]

    def _summary(self, tokens: Tensor, question: Tensor) -> Tensor:
        """Tokens as one vector, (batch, 1, table_width): that of the question after them."""
        around = question.expand(len(tokens), 1, -1)
        x = torch.cat([around, self.embedding.tokens(tokens), around], dim=1)
        return self._outcome(self._pass(x)[:, -1:])

    def _pass(self, vectors: Tensor) -> Tensor:
        """One pass without a cache, over vectors of the token table (batch, n, table_width)."""
        places = torch.arange(vectors.shape[1], device=vectors.device)
        view = LayerContext(
            rotation=self._rotation(places, vectors.dtype),
            mask=causal_mask(places, self.queries_per_key, len(places), vectors.dtype),
        )
        x = self.embedding.placed(vectors, places)
        for block in self.blocks:
            x, _ = block(x, view)
        return x


class SegmentMemory(nn.Module):
    """Finds what a segment needs of earlier ones.

    Attributes:
        question: (1, table_width), before and after the tokens that are summarised.
        first: (1, table_width), takes the place of what is recalled while all memories are empty.
    """

    def __init__(self, table_width: int) -> None:
        super().__init__()
        self.queries = nn.Linear(table_width, RECALL_WIDTH, bias=False)
        self.keys = nn.Linear(table_width, RECALL_WIDTH, bias=False)
        self.question = nn.Parameter(torch.empty(1, table_width))
        self.first = nn.Parameter(torch.empty(1, table_width))
        initialise(self)
        # As rows of the token table, which they stand beside.
        for vector in (self.question, self.first):
            nn.init.normal_(vector, std=table_width**-0.5)

    def forward(self, summary: Tensor, memories: Tensor) -> Tensor:
        """The recalled memory (batch, 1, table_width): memories weighted by their likeness.

        Args:
            summary: (batch, 1, table_width) of the segment.
            memories: (batch, N, table_width); those of zeros are empty and not recalled.

        Source: He et al. 2024, memory recall: softmax((S Wq)(M Wk)^T / sqrt(RECALL_WIDTH)) M.
        """
        scores = self.queries(summary) @ self.keys(memories).transpose(1, 2) * RECALL_WIDTH**-0.5
        sizes = memories.abs().amax(dim=-1)[:, None]
        zero = torch.zeros((), dtype=scores.dtype, device=scores.device)
        mask = torch.where(sizes > 0, zero, torch.finfo(scores.dtype).min)
        recalled = torch.softmax(scores + mask, dim=-1) @ memories
        return torch.where(sizes.amax(dim=-1, keepdim=True) > 0, recalled, self.first)
