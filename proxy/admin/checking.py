"""Validates requests against the models of their operation. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel, ValidationError

from broker_core.remoting.json_budget import exceeds
from proxy.errors import OrderlaneError
from proxy.operator.request_models import RequestModel

AnyRequest = TypeVar("AnyRequest", bound=RequestModel)

_INTEGER = re.compile(r"-?(0|[1-9][0-9]{0,18})")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,18})(\.[0-9]{1,18})?([eE][+-]?[0-9]{1,2})?")
_LONGEST_NAME = 60
#: Values in a body: a redrive names up to 10,000 messages.
MAX_ELEMENTS = 50_000
#: Levels of a body: more than a group's settings have.
_MAX_DEPTH = 32


class Malformed(OrderlaneError):
    """The request does not match its operation."""


def body_of(content: bytes, model: type[AnyRequest]) -> AnyRequest:
    """Parse the body of a request. Raises Malformed."""
    if len(content) > MAX_ELEMENTS and exceeds(content, MAX_ELEMENTS):
        raise Malformed(f"the request has too many values: the limit is {MAX_ELEMENTS}")
    try:
        asked = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise Malformed(f"the request should be a JSON object: {error}") from None
    if not isinstance(asked, dict):
        raise Malformed("the request should be a JSON object")
    return _checked(_whole_numbers(asked), model)


def _whole_numbers(value: Any, depth: int = 0) -> Any:
    """Convert 5.0 to 5 in *value*, since JSON has one number type. Raises Malformed."""
    if depth > _MAX_DEPTH:
        raise Malformed(f"the request is nested too deeply: the limit is {_MAX_DEPTH} levels")
    if isinstance(value, dict):
        return {name: _whole_numbers(each, depth + 1) for name, each in value.items()}
    if isinstance(value, list):
        return [_whole_numbers(each, depth + 1) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def query_of(given: Sequence[tuple[str, str]], model: type[AnyRequest]) -> AnyRequest:
    """Parse the query string of a request. Raises Malformed."""
    asked: dict[str, Any] = {}
    kinds = _kinds(model)
    for name, text in given:
        if name in asked:
            raise Malformed(f"{_shown(name)} is given twice")
        asked[name] = _value(text, kinds.get(name, "string"))
    return _checked(asked, model)


def _checked(asked: dict[str, Any], model: type[AnyRequest]) -> AnyRequest:
    try:
        return model.model_validate(asked)
    except ValidationError as error:
        raise Malformed("; ".join(dict.fromkeys(_sentences(error, model)))) from None


def _sentences(error: ValidationError, model: type[BaseModel]) -> list[str]:
    found = []
    for detail in error.errors(include_url=False, include_context=True):
        location = detail["loc"]
        name = str(location[0]) if location else "the request"
        field = model.model_fields.get(name)
        should_be = "" if field is None else f"should be {field.description}"
        if detail["type"] == "extra_forbidden" and len(location) == 1:
            near = difflib.get_close_matches(name, model.model_fields, n=1)
            known = ", ".join(model.model_fields) or "none"
            found.append(
                f"unknown field {_shown(name)}: "
                + (f"did you mean {near[0]}?" if near else f"known fields: {known}")
            )
        elif detail["type"] == "missing" and len(location) == 1:
            found.append(f"{name} is missing: it {should_be}")
        elif detail["type"] == "value_error":
            place = f"{name}: " if location else ""
            found.append(f"{place}{detail['ctx']['error']}")
        else:
            found.append(f"{name} {should_be}")
    return found


def _kinds(model: type[BaseModel]) -> dict[str, str]:
    """Return the JSON type of each field; query parameters arrive as text."""
    properties = model.model_json_schema()["properties"] if model.model_fields else {}
    return {name: _kind(schema) for name, schema in properties.items()}


def _kind(schema: dict[str, Any]) -> str:
    kinds = [_kind(each) for each in schema.get("anyOf", ())]
    return next((kind for kind in kinds if kind != "null"), str(schema.get("type", "string")))


def _value(text: str, kind: str) -> Any:
    if kind == "integer" and _INTEGER.fullmatch(text):
        return int(text)
    if kind == "number" and _NUMBER.fullmatch(text):
        return float(text)
    if kind == "boolean" and text in ("true", "false"):
        return text == "true"
    return text


def _shown(name: str) -> str:
    return repr(name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…")
