"""Pointing at a token in the viewer, beside a frame in which nothing changes, in Chromium.

The time runs from the event until the next frame has been drawn, which includes the wait for the
screen (up to 17 ms).
"""

import os
import shutil
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import Result
from benchmarks.suite import MissingPackageError, Setting
from configs import tiny
from configs.changes import change
from experiment.loaded import LoadedRun
from experiment.run import RunDirectory
from model import transformer
from probes import capture, view

GOAL = 0.05  # seconds
POINT = """async ([token, points]) => {
  const drawn = () => new Promise((done) => requestAnimationFrame(() => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = done;
    port2.postMessage(0);
  }));
  await drawn();
  const start = performance.now();
  if (points) document.querySelector(`[data-at="${token}"]`).dispatchEvent(
    new PointerEvent("pointerover", { bubbles: true, pointerType: "mouse", clientX: token }));
  await drawn();
  return performance.now() - start;
}"""


class FakeTokenizer:
    """A tokenizer of 512 ids, without a file."""

    bos_id, eos_id, vocab_size = 1, 2, 512
    piece_bytes = tuple(b" %d" % i for i in range(512))


def measure(setting: Setting) -> Iterator[Result]:
    """Yield the time for one model, and for two side by side."""
    try:
        from playwright import sync_api  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise MissingPackageError(
            "viewer needs playwright: run `make test-browser` once, "
            "then this with PYTHONPATH=.venv-browser"
        ) from None
    model = dict(num_layers=4, num_heads=8, head_dim=32, embed_dim=256)
    config = change(tiny.configs[0], model=model, data=dict(context_length=1024))
    run = LoadedRun(RunDirectory("nowhere"), 0, config, transformer.init(config.model, 0))
    inside = capture(run, np.random.default_rng(0).integers(0, 512, (1, 1024)))
    tokenizer: Any = FakeTokenizer()
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    flags = [] if os.getuid() else ["--no-sandbox"]
    with tempfile.TemporaryDirectory() as folder, sync_api.sync_playwright() as playwright:
        page = playwright.chromium.launch(executable_path=chromium, args=flags).new_page()
        for names in (["one"], ["one", "other"]):
            file = Path(folder) / "view.html"
            view(dict.fromkeys(names, inside), tokenizer, max_size=100).save(file)
            page.goto(file.as_uri())
            page.wait_for_selector("html[data-ready]")
            pointing, still = zip(
                *(
                    [page.evaluate(POINT, [(397 * n + 300) % 1024, points]) for points in (1, 0)]
                    for n in range(setting.rounds)
                ),
                strict=True,
            )
            yield Result(
                name=f"pointing at a token, {len(names)} models, 32 heads, 1,024 tokens",
                ratio=f"time until the frame is drawn over {1e3 * GOAL:.0f} ms",
                least=min(pointing) / 1e3 / GOAL,
                median=statistics.median(pointing) / 1e3 / GOAL,
                at_most=1.0,
                measured={
                    "ms": statistics.median(pointing),
                    "ms if nothing changes": statistics.median(still),
                },
            )
