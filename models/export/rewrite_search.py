"""Makes the ONNX exporter's search for patterns linear; what it finds is the same.

Source: onnxscript 0.7.2, `rewriter/_matcher.py`: for a pattern with several last nodes,
`SimplePatternMatcher.match` first sorts all nodes of the graph by operator, also where the given
node cannot be the first of them. It is called for every node, so the time grows with the square of
the graph: of a decoder with 30 layers it was half of the export.
"""

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def direct_search() -> Iterator[None]:
    """Compares the operator of the given node first; in another version it changes nothing."""
    try:
        from onnxscript.rewriter import MatchResult, _matcher

        matcher = _matcher.SimplePatternMatcher
        whole_search = matcher.match
    except (ImportError, AttributeError):
        yield
        return

    def match(self, model, graph_or_function, node, **options):  # type: ignore[no-untyped-def]
        pattern = self.pattern
        if not pattern.has_single_output_node:
            wanted = pattern.output_nodes[0].op_identifier()
            if wanted is not None and wanted != node.op_identifier():
                return MatchResult().fail("the node has another operator")
        return whole_search(self, model, graph_or_function, node, **options)

    matcher.match = match
    try:
        yield
    finally:
        matcher.match = whole_search
