"""Tests of exports and imports run as where transformers is not installed, unless marked `hf`."""

import pytest


@pytest.fixture(autouse=True)
def no_transformers(monkeypatch, request):
    if "hf" not in request.keywords:
        for module in ("check", "transformers_model"):
            monkeypatch.setattr(f"ropewalk.interop.{module}.has_transformers", lambda: False)
