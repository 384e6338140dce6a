"""The committed rows of the capability study: reading them takes seconds."""

import pytest

from ropewalk.studies import folder, rows


@pytest.fixture(scope="session")
def committed() -> list[rows.Row]:
    return rows.read_all(folder("capability") / "rows")
