"""Names of models in the OpenAPI document."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.admin.openapi import document
from proxy.admin.operations import Call, post
from proxy.operator.request_models import ChangeBody


def body(name: str, **fields: Any) -> type[ChangeBody]:
    return type(name, (ChangeBody,), {"__annotations__": fields, "__module__": __name__})


async def handle(call: Call) -> dict[str, Any]:
    return {}


def test_two_models_of_one_name_are_refused() -> None:
    """One would replace the other in the document."""
    ways = [
        post(f"/api/{path}", "Do it.", handle, body=body("Body", **{path: int}), answer=ChangeBody)
        for path in ("one", "two")
    ]
    with pytest.raises(ValueError, match="two models of the admin API are named Body"):
        document(ways, version="1")
