"""Each published folder has the repository's licence."""

from __future__ import annotations

import pytest

from testkit.processes import ROOT


@pytest.mark.parametrize("client", ["cpp", "go", "java", "node"])
def test_the_licence_of_a_client_is_that_of_the_repository(client: str) -> None:
    copy = ROOT / "thin_client" / client / "LICENSE"
    assert copy.read_bytes() == (ROOT / "LICENSE").read_bytes()
