"""The table of key verbs as a JavaScript module for the console."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import orjson

from proxy.operator.key_models import QueuedKeyBody
from proxy.operator.key_table import KEY_VERBS, KeyVerb

NAME = "key-verbs.js"


def key_verbs_js(verbs: Iterable[KeyVerb] = KEY_VERBS) -> bytes:
    """Return a JavaScript module that exports ``VERBS`` in display order."""
    shown = [_of(each) for each in sorted(verbs, key=lambda verb: verb.dialog.rank)]
    return (
        b"// Generated from the proxy's table of key verbs.\n\nexport const VERBS = %s;\n"
        % orjson.dumps(shown, option=orjson.OPT_INDENT_2)
    )


def _of(verb: KeyVerb) -> dict[str, Any]:
    dialog = asdict(verb.dialog)
    del dialog["rank"]
    dialog["fields"] = [
        {name: value for name, value in field.items() if value is not None}
        for field in dialog["fields"]
    ]
    return {"name": verb.name, "queued": issubclass(verb.body, QueuedKeyBody), **dialog}
