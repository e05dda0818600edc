"""The OpenAPI document of the operations. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import models_json_schema

from proxy.admin.operations import JSON, PARAMETERS, TEXT, UNANSWERED, ErrorAnswer, Operation

_REFERENCE = "#/components/schemas/{model}"


def document(operations: Iterable[Operation], *, version: str) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of *operations*."""
    paths: dict[str, dict[str, Any]] = {}
    schemas: dict[str, Any] = {}
    error = _schema(ErrorAnswer, schemas, mode="serialization")
    for operation in operations:
        if not operation.documented:
            continue
        place = paths.setdefault(operation.path, {})
        place[operation.method.lower()] = _operation(operation, schemas, error)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "orderlane",
            "version": version,
            "description": "Admin API of a proxy. Names in paths are percent-encoded. An error is a"
            " JSON object with one sentence.",
        },
        "paths": paths,
        "components": {"schemas": schemas},
    }


def _operation(
    operation: Operation, schemas: dict[str, Any], error: dict[str, Any]
) -> dict[str, Any]:
    done: dict[str, Any] = {"description": "success", "content": _answer(operation, schemas)}
    if operation.partly:
        about = "brokers that did not answer: their rows are missing"
        done["headers"] = {UNANSWERED: {"description": about, "schema": {"type": "string"}}}
    answers: dict[str, Any] = {"200": done}
    failed = {"type": "string"} if operation.media == TEXT else error
    media = TEXT if operation.media == TEXT else JSON
    for status in operation.statuses:
        answers[str(status)] = {
            "description": HTTPStatus(status).phrase,
            "content": {media: {"schema": failed}},
        }
    described: dict[str, Any] = {
        "operationId": _name(operation),
        "summary": operation.summary,
        "responses": answers,
    }
    if parameters := [*_path_parameters(operation), *_query_parameters(operation, schemas)]:
        described["parameters"] = parameters
    if operation.body is not None:
        schema = _schema(operation.body, schemas, mode="validation")
        described["requestBody"] = {"required": True, "content": {JSON: {"schema": schema}}}
    return described


def _answer(operation: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    if operation.media != JSON:
        return {operation.media: {"schema": {"type": "string"}}}
    return {JSON: {"schema": _schema(operation.answer, schemas, mode="serialization")}}


def _path_parameters(operation: Operation) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": PARAMETERS.get(name, name),
            "schema": {"type": "string", "minLength": 1},
        }
        for name in operation.parameters
    ]


def _query_parameters(operation: Operation, schemas: dict[str, Any]) -> list[dict[str, Any]]:
    if operation.query is None:
        return []
    schema = operation.query.model_json_schema(ref_template=_REFERENCE)
    schemas.update(schema.get("$defs", {}))
    required = schema.get("required", ())
    return [
        {
            "name": name,
            "in": "query",
            "required": name in required,
            "description": each.get("description", ""),
            "schema": _not_null(each),
        }
        for name, each in schema.get("properties", {}).items()
    ]


def _not_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema without null, which stands for an omitted parameter."""
    inner = [each for each in schema.get("anyOf", ()) if each.get("type") != "null"]
    kept = {name: value for name, value in schema.items() if name not in ("anyOf", "default")}
    if schema.get("default") is not None:
        kept["default"] = schema["default"]
    return {**inner[0], **kept} if len(inner) == 1 else kept


def _schema(of: Any, schemas: dict[str, Any], *, mode: Any) -> dict[str, Any]:
    """Return the schema of a type; named schemas are added to *schemas* and referenced."""
    if hasattr(of, "model_json_schema"):
        found, definitions = models_json_schema([(of, mode)], ref_template=_REFERENCE)
        _add(definitions.get("$defs", {}), schemas)
        return dict(found[of, mode])
    schema = TypeAdapter(of).json_schema(mode=mode, ref_template=_REFERENCE)
    _add(schema.pop("$defs", {}), schemas)
    return schema


def _add(found: dict[str, Any], schemas: dict[str, Any]) -> None:
    """Add named schemas. Raises ValueError for two models with one name."""
    for name, schema in found.items():
        if schemas.setdefault(name, schema) != schema:
            raise ValueError(f"two models of the admin API are named {name}: rename one")


def _name(operation: Operation) -> str:
    words = [word.strip("{}") for word in operation.path.split("/") if word]
    return "_".join([operation.method.lower(), *words]).replace("-", "_").replace(".", "_")
