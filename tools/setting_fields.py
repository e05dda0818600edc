"""Every setting of a model by its path, including those in lists and in optional parts."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo


def setting_fields(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Return path and field of each, such as ``groups[].topics[].name``.

    A group that is always present has no line of its own.
    """
    for name, field in model.model_fields.items():
        path = prefix + name
        if not _is_model(field.annotation):
            yield path, field
        for inner, listed in _models(field.annotation, listed=False):
            yield from setting_fields(inner, f"{path}[]." if listed else f"{path}.")


def _is_model(annotation: Any) -> bool:
    return inspect.isclass(annotation) and issubclass(annotation, BaseModel)


def _models(annotation: Any, *, listed: bool) -> Iterator[tuple[type[BaseModel], bool]]:
    if _is_model(annotation):
        yield annotation, listed
    for argument in get_args(annotation):
        yield from _models(argument, listed=listed or get_origin(annotation) is tuple)
