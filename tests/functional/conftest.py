"""One server of scenarios for the session."""

import pytest
from sides import Sides


@pytest.fixture(scope="session")
def sides():
    with Sides() as running:
        yield running
