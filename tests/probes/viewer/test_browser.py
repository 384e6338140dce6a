"""The page in a browser without a network: it fetches nothing and reacts to pointer and keys."""

import os
import re
import shutil

import numpy as np
import pytest

from ropewalk.probes import capture, view
from tests.probes.test_capturing import random_model
from tests.probes.viewer.test_page import tokenizer

pytestmark = [
    pytest.mark.browser,
    pytest.mark.filterwarnings("ignore:.* the model was trained on rows of"),
]
api = pytest.importorskip("playwright.sync_api", reason="make test-browser installs it")

LENGTH = 1024


@pytest.fixture(scope="module")
def captured():
    run = random_model(dict(num_layers=2), "rope(base=30)")
    return capture(run, np.random.default_rng(0).integers(10, 512, (2, LENGTH)))


@pytest.fixture(scope="module")
def file(captured, tmp_path_factory):
    page = view(
        {"one": captured, "two": captured}, tokenizer(512), titles=["first", "second"], max_size=25
    )
    return page.save(tmp_path_factory.mktemp("view") / "view.html")


@pytest.fixture(scope="module")
def chromium():
    names = "chromium", "chromium-browser", "google-chrome"
    executable = next((path for path in map(shutil.which, names) if path), None)
    # Chromium has no sandbox for root.
    flags = [] if os.getuid() else ["--no-sandbox"]
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=flags)
        yield browser
        browser.close()


@pytest.fixture
def page(chromium, file):
    """Open the page; a request or an error fails the test."""
    context = chromium.new_context(viewport=dict(width=1200, height=900), offline=True)
    context.set_default_timeout(10_000)
    page, problems = context.new_page(), []
    page.on("request", lambda request: problems.append(request.url))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text))
    page.goto(file.as_uri())
    page.wait_for_selector("html[data-ready]")
    yield page
    assert problems == [file.as_uri()]
    context.close()


def token(page, position: int, member: int = 0):
    return page.locator(f'.text [data-member="{member}"] [data-at="{position}"]')


def readout(page, member: int = 0) -> str:
    # Wait for the frame that updates the page and the one that shows it.
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
    return page.locator(f'.text [data-member="{member}"] .readout').inner_text()


def head_shown(page, member: int = 0) -> tuple[int, int]:
    thumb = page.locator(f'.heads [data-member="{member}"] .thumb[aria-pressed="true"]')
    return tuple(map(int, re.findall(r"\d+", thumb.get_attribute("title"))))


def test_pointing_at_a_token_shows_its_weights(page, captured):
    layer, head = head_shown(page)
    weights_TS = np.asarray(captured.weights(layer))[0, head]
    for position in (1000, 20, 517):
        token(page, position).hover()
        assert f" at {position} attends to" in readout(page)
        chip = page.locator(".chip").first
        best = int(chip.get_attribute("data-other"))
        # Nearly equal weights have the same byte.
        assert weights_TS[position, best] == pytest.approx(weights_TS[position].max(), rel=0.05)
        page.wait_for_timeout(100)  # for tokens out of view
        shades = page.evaluate(
            "[...document.querySelectorAll('.text [data-member=\"0\"] [data-at]')]"
            ".map((token) => token.style.backgroundColor)"
        )
        assert not any(shades[position + 1 :]) and any(shades[: position + 1])
        assert shades[best] == min(filter(None, shades), key=lambda rgb: sum(eval(rgb[3:])))
        # The other model shows the same token.
        assert f" at {position} attends to" in readout(page, 1)


def test_a_click_holds_the_query(page, captured):
    layer, head = head_shown(page)
    token(page, 900).click()
    token(page, 880).hover()
    weight = float(captured.weights(layer)[0, head, 900, 880])
    match = re.search(r"20 back: weight ([\d.]+)%", readout(page))
    assert float(match[1]) / 100 == pytest.approx(weight, abs=np.sqrt(weight) / 255 + 2e-3)
    logit = float(captured.logits(layer)[0, head, 900, 880])
    score = re.search(r"score ([+−][\d.]+)", readout(page))[1].replace("−", "-")
    assert float(score) == pytest.approx(logit, abs=0.15)
    page.keyboard.press("Escape")
    token(page, 890).hover()
    assert " at 890 attends to" in readout(page)
