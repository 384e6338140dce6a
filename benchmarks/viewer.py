"""Pointing at a token of the viewer's page, beside a frame in which nothing changes (Chromium).

What is timed is from the event until the frame that answers it has been drawn, waiting for the
screen's next frame (up to 17 ms) included.
"""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from configs import find_config
from configs.changes import change
from experiment.loaded import LoadedRun
from experiment.run import RunDirectory
from model import transformer
from probes import capture, view

TIMED = """async ([place, points]) => {
  const drawn = () => new Promise((done) => requestAnimationFrame(() => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = done;
    port2.postMessage(0);
  }));
  await drawn();
  const start = performance.now();
  if (points) document.querySelector(`[data-at="${place}"]`).dispatchEvent(
    new PointerEvent("pointerover", { bubbles: true, pointerType: "mouse", clientX: place }));
  await drawn();
  return performance.now() - start;
}"""


class Pieces:
    """Names of 512 ids, in a tokenizer's place."""

    bos_id, eos_id, vocab_size = 1, 2, 512
    piece_bytes = tuple(b" %d" % i for i in range(512))


def main(rounds: int) -> None:
    """Prints medians of both, for one model and for two side by side."""
    try:
        from playwright import sync_api  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise ValueError(
            "viewer needs playwright: run `make test-browser` once, "
            "then this with PYTHONPATH=.venv-browser"
        ) from None
    model = dict(num_layers=4, num_heads=8, head_dim=32, embed_dim=256)
    config = change(find_config("tiny"), model=model, data=dict(context_length=1024))
    run = LoadedRun(RunDirectory("nowhere"), 0, config, transformer.init(config.model, 0))
    inside = capture(run, np.random.default_rng(0).integers(0, 512, (1, 1024)))
    pieces: Any = Pieces()
    own = shutil.which("chromium") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as folder, sync_api.sync_playwright() as playwright:
        flags = [] if os.getuid() else ["--no-sandbox"]
        page = playwright.chromium.launch(executable_path=own, args=flags).new_page()
        for names in (["one"], ["one", "other"]):
            file = Path(folder) / "view.html"
            view(dict.fromkeys(names, inside), pieces, max_size=100).save(file)
            page.goto(file.as_uri())
            page.wait_for_selector("html[data-ready]")
            times_XN = np.array(
                [
                    [page.evaluate(TIMED, [(397 * n + 300) % 1024, points]) for points in (1, 0)]
                    for n in range(rounds)
                ]
            ).T
            pointed, still = np.median(times_XN, axis=1)
            print(
                f"{len(names)} models, 32 heads, 1,024 tokens: {pointed:.0f} ms, still {still:.0f}"
            )
