"""The Go module, fetched by ``go get`` from a module proxy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.packages.pages import Page
from tests.packages.projects import assert_quick_start, need, run, serve_orders
from tools.release.clients import GO_MODULE, go_module
from tools.versions import release_version

pytestmark = [pytest.mark.sockets, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Variables with which Go finds the module, and keeps it to this run."""
    need("go")
    folder = tmp_path_factory.mktemp("go")
    go_module(folder, {})
    run("go mod download", folder / "go-sources")  # what the module requires, into Go's cache
    proxy = folder / "go-proxy"
    usual = run("go env GOMODCACHE", folder).strip()
    return {
        "GOPROXY": f"file://{proxy},file://{usual}/cache/download",
        "GOSUMDB": "off",  # it does not know the module; the client's go.sum has the others
        "GOMODCACHE": str(folder / "cache"),
        "GOFLAGS": "-modcacherw",
        "GOWORK": "off",
    }


def test_the_quick_start_of_the_readme(
    module: Mapping[str, str], gateway: str, project: Path
) -> None:
    page = Page("thin_client/go/README.md", gateway)
    page.write(project)
    output = [run(command, project, module) for command in page.commands("Quick start")]
    assert_quick_start(output[-1], keys=3)
    assert f"{GO_MODULE} v{release_version()}" in (project / "go.mod").read_text()


def test_the_program_for_those_who_come_from_franz_go(
    module: Mapping[str, str], gateway: str, project: Path
) -> None:
    Page("docs/from-franz-go.md", gateway).write(project)
    run("go mod init billing", project, module)
    run(f"go get {GO_MODULE}@v{release_version()}", project, module)
    run("go vet . && go build -o billing .", project, module)
    serve_orders([str(project / "billing")], project, gateway)


def test_the_archive_has_a_licence(module: Mapping[str, str], project: Path) -> None:
    """Without one pkg.go.dev shows no documentation."""
    run("go mod init empty", project, module)
    run(f"go get {GO_MODULE}", project, module)
    folder = run(f"go list -m -f {{{{.Dir}}}} {GO_MODULE}", project, module).strip()
    assert "Apache License" in (Path(folder) / "LICENSE").read_text()
