"""One image for all tests here, since it takes a while to build."""

from __future__ import annotations

import pytest

from tests.helm.image import Image


@pytest.fixture(scope="session")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    return Image.build(tmp_path_factory.mktemp("image"))
