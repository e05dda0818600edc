"""Combines settings from YAML file, environment and options, and explains invalid ones.

It is independent of the models, which are in ``proxy.settings.proxy_settings``.
"""

from __future__ import annotations

import difflib
import re
import reprlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError

from proxy.errors import SettingsError

ENVIRONMENT_PREFIX = "ORDERLANE_"
#: Prefixes of the embedded broker's settings, which are not the proxy's.
BROKER_PREFIX = "ORDERLANE_BROKER__"

Location = tuple[int | str, ...]

#: Largest number of values in one file: even thousands of groups have fewer.
_MOST_VALUES = 100_000

#: Settings whose invalid values are not shown: a token may be given in place of its hash.
_NOT_SHOWN = frozenset({"sha256"})


class _Loader(yaml.SafeLoader):
    """YAML's safe loader, which also rejects duplicate names, whose first value would be lost, and
    nested aliases that expand excessively.
    """

    def get_single_data(self) -> Any:
        node = self.get_single_node()
        if node is None:
            return None
        _count_values(node, {})
        return self.construct_document(node)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep=deep)
        except (AttributeError, LookupError, OverflowError):  # of a tag or number, as !!bool maybe
            kind = node.tag.removeprefix("tag:yaml.org,2002:")
            problem = f"{short(node.value)} is not a value of the type {short(kind)}"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                problem = f"{key.value!r} is a duplicate name"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else "")
        return super().construct_mapping(node, deep)


def _count_values(node: yaml.Node, counted: dict[int, int | None]) -> int:
    """Return the number of values below *node*, with aliases expanded. Raises ConstructorError."""
    if id(node) not in counted:
        counted[id(node)] = None  # not known yet: an alias to it from within is endless
        below = node.value if isinstance(node, yaml.CollectionNode) else ()
        parts = (part for each in below for part in (each if isinstance(each, tuple) else (each,)))
        counted[id(node)] = 1 + sum(_count_values(part, counted) for part in parts)
    values = counted[id(node)]
    if values is None or values > _MOST_VALUES:
        problem = f"aliases expand to more than {_MOST_VALUES:,} values"
        raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
    return values


@dataclass(slots=True)
class Layers:
    """Values of all sources, merged, and the source of each."""

    source: str
    """Name of the file in messages."""
    merged: dict[str, Any]
    given_by: dict[Location, str] = field(default_factory=dict)
    """Location of a value that does not come from the file → its variable or option."""

    @classmethod
    def read(
        cls,
        path: Path | None,
        environment: Mapping[str, str],
        overrides: Mapping[str, Any],
        *,
        known: Collection[str],
        content: bytes | None = None,
        prefix: str = ENVIRONMENT_PREFIX,
    ) -> Layers:
        """Read all sources. Raises SettingsError if one of them cannot be read at all.

        *content* is the file's content, if it was read before; *prefix* is the prefix of variables.
        *known* are the top-level names: not every variable that begins with ORDERLANE_ is a setting
        (Kubernetes sets ORDERLANE_PORT for a service named orderlane).
        """
        layers = cls(
            "settings" if path is None else str(path),
            {} if path is None else _settings_in(path, content),
        )
        for name, text in sorted(environment.items()):
            if name.startswith(ENVIRONMENT_PREFIX) and prefix == _prefix_of(name):
                location = tuple(name.removeprefix(prefix).lower().split("__"))
                meant = prefix == BROKER_PREFIX or len(location) > 1
                if meant or difflib.get_close_matches(location[0], known, cutoff=0.8):
                    layers.put(location, _plain(text), name)
        for name, value in overrides.items():
            layers.put(tuple(name.split(".")), value, name)
        return layers

    def put(self, location: tuple[str, ...], value: Any, giver: str) -> None:
        """Override *location* with *value*. Raises SettingsError if its parent is not a group."""
        place = self.merged
        for depth, name in enumerate(location[:-1], start=1):
            inner = place.get(name)
            if inner is None:
                self.given_by.setdefault(location[:depth], giver)
            if inner is not None and not isinstance(inner, dict):
                raise SettingsError(f"{giver}: {name} is {short(inner)}, not a group of settings")
            place[name] = place = {} if inner is None else dict(inner)
        place[location[-1]] = value
        self.given_by[location] = giver

    def name_of(self, location: Location) -> str:
        """Return the name of *location* for people: the variable that set it, or file and path."""
        for length in range(len(location), 0, -1):
            if giver := self.given_by.get(location[:length]):
                return giver + _path(location[length:], leading_dot=True)
        return f"{self.source}: {_path(location)}" if location else self.source


def _prefix_of(name: str) -> str:
    return BROKER_PREFIX if name.startswith(BROKER_PREFIX) else ENVIRONMENT_PREFIX


def explain(error: ValidationError, layers: Layers, model: type[BaseModel]) -> Iterator[str]:
    """Yield one sentence per problem of *error*: where, what was found, what is right."""
    for detail in error.errors(include_url=False):
        kind, location = detail["type"], detail["loc"]
        where = layers.name_of(location)
        if kind == "extra_forbidden":
            yield f"{where}: {_unknown(str(location[-1]), _model_at(model, location[:-1]))}"
        elif kind == "missing":
            yield f"{where} is missing: every {_noun(location)} needs it"
        elif kind == "invalid_key":
            yield f"{where}: the name of a setting should be text"
        else:
            found = detail["input"]
            is_one_value = kind != "value_error" or not isinstance(found, dict | list)
            is_one_value = is_one_value and location[-1] not in _NOT_SHOWN
            yield f"{where}{f' is {short(found)}' if is_one_value else ''}: {_advice(detail)}"


#: Largest whole number shown, in bits; Python refuses to format 4,300 digits.
_MOST_BITS = 4_000
#: User and password in a URL.
_USER = re.compile(r"//[^/\s]*@")


def short(value: object) -> str:
    """Return *value* for a message: one line, shortened, without a URL's password."""
    if isinstance(value, dict):
        return "a group of settings"
    if value is None:
        return "null"
    if isinstance(value, date):
        return str(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and value.bit_length() > _MOST_BITS:
        return f"a number of more than {_MOST_BITS // 4} digits"
    limited = reprlib.Repr()
    limited.maxstring = limited.maxother = 60
    return limited.repr(_USER.sub("//…@", value) if isinstance(value, str) else value)


def read_yaml(path: Path, text: bytes | None = None) -> Any:
    """Return the content of the YAML file *path*, or of *text* if it was read before. Raises
    SettingsError.
    """
    try:
        return yaml.load(path.read_bytes() if text is None else text, Loader=_Loader)
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror or error}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise SettingsError(f"{path}{place}: invalid YAML: {error.problem}") from None
    except (yaml.YAMLError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise SettingsError(f"{path}: invalid YAML: {reason}") from None
    except RecursionError:
        raise SettingsError(f"{path}: nested too deeply for a settings file") from None


def _settings_in(path: Path, text: bytes | None) -> dict[str, Any]:
    content = read_yaml(path, text)
    if content is None:
        return {}  # an empty file means all defaults
    if not isinstance(content, dict):
        raise SettingsError(
            f"{path}: is {short(content)}, should be settings such as 'nameserver: 127.0.0.1:9876'"
        )
    return content


def _plain(text: str) -> Any:
    """Parse an environment variable's value as YAML, so that 5, true and [] have the same
    meaning.
    """
    try:
        value = yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, ValueError, RecursionError):
        return text
    return value if isinstance(value, bool | int | float | list) or value is None else text


def _path(location: Location, *, leading_dot: bool = False) -> str:
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{_name(part)}" for part in location)
    return text if leading_dot else text.removeprefix(".")


def _name(part: str) -> str:
    """Return a name for a message: one line, shortened."""
    return part if part.isprintable() and len(part) <= 60 else short(part)


def _model_at(model: type[BaseModel], location: Location) -> type[BaseModel]:
    for part in location:
        if isinstance(part, str):
            model = next(_models_in(model.model_fields[part].annotation))
    return model


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)


def _unknown(name: str, model: type[BaseModel]) -> str:
    if name in getattr(model, "later", ()):
        return "is not supported yet: remove it"
    known = sorted(model.model_fields)
    near = difflib.get_close_matches(name, known, n=1)
    return f"unknown; did you mean {near[0]}?" if near else f"unknown; known are {', '.join(known)}"


def _noun(location: Location) -> str:
    """Return the noun for the parent of *location*; for a list such as groups, its singular."""
    group = next(
        (part for part in reversed(location[:-1]) if isinstance(part, str)), "settings file"
    )
    of_list = isinstance(location[-2], int) if len(location) > 1 else False
    return group.removesuffix("s") if of_list and not group.endswith("ss") else group


def _advice(detail: Any) -> str:
    match detail["type"]:
        case "value_error":
            return str(detail["ctx"]["error"])
        case "tuple_type":
            return "should be a list"
        case "model_type":
            return "should be a group of settings, each with its name"
        case "float_type":
            return "should be a number"
        case "string_type":
            return "should be text"
        case _:
            return re.sub(
                r"^\w+ should", "should", str(detail["msg"])
            )  # drops pydantic's subject: value, text or list
