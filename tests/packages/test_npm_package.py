"""The npm package, installed from its tarball."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from testkit.processes import ROOT
from tests.packages.pages import Page
from tests.packages.projects import assert_quick_start, need, run, serve_orders
from tools.release.clients import npm_package

pytestmark = [pytest.mark.sockets, pytest.mark.timeout(900)]

QUIET = "--prefer-offline --no-audit --no-fund --loglevel=error --ignore-scripts"
#: Per resolution: the kind of module, and the compiler's options.
RESOLUTIONS = {
    "node10": ("commonjs", {"module": "commonjs", "moduleResolution": "node10"}),
    "node16-esm": ("module", {"module": "node16", "moduleResolution": "node16"}),
    "node16-cjs": ("commonjs", {"module": "node16", "moduleResolution": "node16"}),
    "bundler": ("module", {"module": "es2022", "moduleResolution": "bundler"}),
}
TYPED = """\
import { Consumer, type Message, Refused, Retry } from "orderlane";

const consumer = new Consumer({ servers: "127.0.0.1:1", group: "g", topics: ["orders"] });
consumer.on("leaseLost", (message: Message) => console.log(message.orderKey));
void consumer.run(async (message, { signal }) => {
  const text: string | null = message.key;
  if (signal.aborted || text === null) throw new Retry({ afterMs: 10 });
});
// @ts-expect-error: the types are read, not any
new Refused("code");
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that has the package, TypeScript and the types of Node."""
    need("node")
    (tarball,) = npm_package(tmp_path_factory.mktemp("npm"), {}).values()
    project = tmp_path_factory.mktemp("project")
    run("npm init --yes", project)
    own = json.loads((ROOT / "thin_client/node/package.json").read_text())["devDependencies"]
    others = " ".join(f"'{name}@{version}'" for name, version in own.items())
    run(f"npm install {QUIET} {tarball} {others}", project)
    return project


def test_the_quick_start_of_the_readme(installed: Path, gateway: str) -> None:
    page = Page("thin_client/node/README.md", gateway)
    page.write(installed)
    assert page.commands("Quick start") == ["npm init --yes", "npm install orderlane"]
    assert_quick_start(run("node quickstart.mjs", installed), keys=3)


def test_the_program_for_those_who_come_from_kafkajs(installed: Path, gateway: str) -> None:
    Page("docs/from-kafkajs.md", gateway).write(installed)
    serve_orders(["node", str(installed / "billing.mjs")], installed, gateway)


def test_import_and_require_give_the_same_classes(installed: Path) -> None:
    program = """\
import * as imported from "orderlane";
import { createRequire } from "node:module";
const required = createRequire(import.meta.url)("orderlane");
const technical = ["__esModule", "module.exports"]; // the second is of newer versions of Node
const namesOf = (all) => Object.keys(all).filter((name) => !technical.includes(name)).sort();
const names = namesOf(required);
console.log(names.every((name) => imported[name] === required[name]), "default" in imported);
console.log(names.join() === namesOf(imported).join(), names.includes("Consumer"));
"""
    (installed / "both.mjs").write_text(program)
    assert run("node both.mjs", installed) == "true false\ntrue true\n"


@pytest.mark.parametrize("resolution", RESOLUTIONS)
def test_typescript_finds_the_types(resolution: str, installed: Path) -> None:
    kind, options = RESOLUTIONS[resolution]
    folder = installed / resolution
    folder.mkdir()
    (folder / "package.json").write_text(json.dumps({"type": kind}))
    (folder / "typed.ts").write_text(TYPED)
    common = {"target": "es2022", "strict": True, "noEmit": True, "types": ["node"]}
    settings = {"compilerOptions": common | options, "include": ["typed.ts"]}
    (folder / "tsconfig.json").write_text(json.dumps(settings))
    run(f"npx tsc -p {resolution}", installed)  # declarations of the package are checked too


def test_traces_show_lines_of_the_sources(installed: Path) -> None:
    program = """\
import { Puller } from "orderlane";
const puller = new Puller({ servers: "127.0.0.1:1", group: "g" });
await puller.pull().catch((error) => console.log(error.stack));
"""
    (installed / "trace.mjs").write_text(program)
    trace = run("node --enable-source-maps trace.mjs", installed)
    assert "orderlane/src/puller.ts:" in trace
    assert (installed / "node_modules/orderlane/src/puller.ts").is_file()


def test_the_package_is_complete(installed: Path) -> None:
    package = installed / "node_modules/orderlane"
    about = json.loads((package / "package.json").read_text())
    assert not about.get("private")
    assert about["repository"]["url"].endswith("github.com/orderlane/orderlane.git")
    assert "Apache License" in (package / "LICENSE").read_text()
    assert not list(package.glob("dist/test*"))
    shutil.rmtree(package / "src")  # only traces and editors need it
    run("node --input-type=module -e 'import \"orderlane\"'", installed)
