"""The timing loop of a page beside a bare loop of the same library in the same page, in turns.

    python benchmarks/browser_loop.py FILE.onnx [FILE.onnx ...]

Needs Chromium, playwright and `make browser-assets`. Prints the median of the ratios of paired
blocks, and their quartiles. Both loops run the same loaded session with the same inputs; only what
stands around `session.run` differs.
"""

import argparse
import base64
import hashlib
import sys
from pathlib import Path
from statistics import median, quantiles

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/makers"))

from browser_tab import free_port
from headless_browser import headless_chromium

from fleetrank.device_agents.browser import assets
from fleetrank.device_agents.browser.place import Place
from fleetrank.device_agents.browser.tab_server import serving
from fleetrank.foundation.onnx_file import onnx_inputs

_PAIRS = """async ([base, bytes, name, shape, runs, pairs]) => {
  const ort = await import(base + "ort.wasm.min.mjs");
  const { timeRuns } = await import(base + "timing.js");
  ort.env.wasm.numThreads = 1;
  ort.env.wasm.wasmPaths = base;
  const file = Uint8Array.from(atob(bytes), c => c.charCodeAt(0));
  const session = await ort.InferenceSession.create(file);
  const size = shape.reduce((a, b) => a * b, 1);
  const feeds = {[name]: new ort.Tensor("float32", new Float32Array(size).fill(0.5), shape)};
  const policy = {min_runs: runs, max_samples: runs, max_time_s: 600, min_observed_s: 1e9,
    half_width: 0};
  const median = (all) => Float64Array.from(all).sort()[all.length >> 1];
  const run = () => session.run(feeds), clock = () => performance.now();
  const ours = async () => median((await timeRuns(run, clock, policy, 1)).samples);
  const bare = async () => {
    const samples = [];
    for (let count = 0; count < runs; count += 1) {
      const start = performance.now();
      await session.run(feeds);
      samples.push(performance.now() - start);
    }
    return median(samples);
  };
  await bare();
  const found = [];
  for (let pair = 0; pair < pairs; pair += 1) {
    const first = pair % 2 ? await bare() : await ours();
    const second = pair % 2 ? await ours() : await bare();
    found.push(pair % 2 ? [first, second] : [second, first]);
  }
  return found;
}"""


def main() -> None:
    """Prints a line for each file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--runs", type=int, default=20, help="of a block")
    parser.add_argument("--pairs", type=int, default=30)
    asked = parser.parse_args()
    place = Place(listen=f"127.0.0.1:{free_port()}")
    serving(place)
    base = f"{place.link}assets/{assets.version()}/"
    with headless_chromium() as browser:
        page = browser.new_page()
        page.goto(place.link)
        for path in asked.files:
            data = path.read_bytes()
            (one,) = onnx_inputs(data)
            shape = [size if isinstance(size, int) else 1 for size in one.sizes]

            given = [
                base,
                base64.b64encode(data).decode(),
                one.name,
                shape,
                asked.runs,
                asked.pairs,
            ]
            pairs = page.evaluate(_PAIRS, given)
            ratios = [ours / bare for bare, ours in pairs]
            low, _, high = quantiles(ratios, n=4)
            bare_ms = median(bare for bare, _ in pairs)
            digest = hashlib.sha256(data).hexdigest()[:8]
            print(
                f"{path.stem[:20]:20} {digest}  bare {bare_ms:.3g} ms  "
                f"ratio {median(ratios):.3f} (quartiles {low:.3f} to {high:.3f})",
                flush=True,
            )


if __name__ == "__main__":
    main()
