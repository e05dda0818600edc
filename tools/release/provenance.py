"""The provenance of a release: from what, and how, its files were built.

A statement of in-toto (https://in-toto.io/Statement/v1) with a predicate of SLSA
(https://slsa.dev/provenance/v1). It is not signed: the publisher of the files signs it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

_REPOSITORY = "https://github.com/orderlane/orderlane"


def provenance(
    files: Mapping[str, str],
    *,
    commit: str,
    inputs: Mapping[str, str],
    tools: Mapping[str, str],
    epoch: int,
) -> str:
    """Return the statement as JSON text; the same arguments give the same text.

    Args:
        files: SHA-256 of the built files, by name
        commit: that of git whose tracked files were built
        inputs: SHA-256 of the files that pin what the builds download, by path
        tools: versions of the tools that built, by name
        epoch: time of the contents, in seconds since 1970
    """
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": files[name]}} for name in sorted(files)],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": f"{_REPOSITORY}/blob/main/SECURITY.md#releases",
                "externalParameters": {"command": "make release-check"},
                "internalParameters": {"SOURCE_DATE_EPOCH": epoch, "tools": dict(tools)},
                "resolvedDependencies": [
                    {"uri": f"git+{_REPOSITORY}", "digest": {"gitCommit": commit}},
                    *(
                        {"name": path, "digest": {"sha256": inputs[path]}}
                        for path in sorted(inputs)
                    ),
                ],
            },
            "runDetails": {"builder": {"id": f"{_REPOSITORY}/blob/main/tools/release"}},
        },
    }
    return json.dumps(statement, indent=2, sort_keys=True) + "\n"
