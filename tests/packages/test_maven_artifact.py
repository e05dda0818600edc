"""The Maven artifact, resolved from a repository."""

from __future__ import annotations

import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.packages.pages import Page
from tests.packages.projects import assert_quick_start, need, run, serve_orders
from tools.release import clients
from tools.versions import release_version

pytestmark = [pytest.mark.sockets, pytest.mark.timeout(900)]

VERSION = release_version()
FOLDER = f"io/github/orderlane/orderlane-client/{VERSION}"
NAME = f"orderlane-client-{VERSION}"
#: What it needs at run time.
LIBRARIES = (
    "org/apache/thrift/libthrift/0.20.0/libthrift-0.20.0.jar",
    "org/slf4j/slf4j-api/2.0.16/slf4j-api-2.0.16.jar",
)
SMALL = ["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
#: Elements that Maven Central requires.
REQUIRED = (
    *("groupId", "artifactId", "version", "name", "description", "url", "licenses/license/name"),
    *("licenses/license/url", "developers/developer/name", "scm/connection"),
    *("scm/developerConnection", "scm/url"),
)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need("java")
    folder = tmp_path_factory.mktemp("maven")
    clients.maven_artifact(folder, {})
    return folder / "m2"


def test_the_quick_start_of_the_readme(repository: Path, gateway: str, project: Path) -> None:
    page = Page("thin_client/java/README.md", gateway)
    page.write(project)
    (project / ".mvn").mkdir()
    (project / ".mvn/maven.config").write_text(f"-B\n-ntp\n-Dmaven.repo.local={repository}\n")
    assert page.commands("Quick start")[-1] == "mvn -q compile exec:java"
    output = run("mvn -q compile exec:java", project)
    assert_quick_start(output.replace(":", ""), keys=2)


def test_the_program_for_those_who_come_from_rocketmq_as_a_module(
    repository: Path, gateway: str, project: Path
) -> None:
    Page("docs/from-rocketmq-java.md", gateway).write(project)
    (project / "module-info.java").write_text(
        "module billing { requires io.github.orderlane.client; }"
    )
    path = ":".join(str(repository / jar) for jar in (f"{FOLDER}/{NAME}.jar", *LIBRARIES))
    run(f"javac -J-Xmx256m -Xlint:all -d out -p {path} *.java", project)
    words = ["java", *SMALL, "-p", f"{path}:{project}/out", "-m", "billing/billing.Billing"]
    serve_orders(words, project, gateway)


def test_the_module_exports_its_api_alone(repository: Path) -> None:
    said = run(f"jar --describe-module --file {NAME}.jar", repository / FOLDER)
    exported = [line for line in said.splitlines() if line.startswith("exports")]
    assert said.startswith(f"io.github.orderlane.client@{VERSION} ")
    assert exported == ["exports io.github.orderlane.client"]


def test_the_artifact_is_complete(repository: Path) -> None:
    folder = repository / FOLDER
    pom = ElementTree.parse(folder / f"{NAME}.pom").getroot()
    names = {"": "http://maven.apache.org/POM/4.0.0"}
    assert [each for each in REQUIRED if not pom.findtext(each, namespaces=names)] == []
    with zipfile.ZipFile(folder / f"{NAME}.jar") as jar:
        assert b"Apache License" in jar.read("META-INF/LICENSE")
    with zipfile.ZipFile(folder / f"{NAME}-sources.jar") as jar:
        assert "io/github/orderlane/client/OrderlaneConsumer.java" in jar.namelist()
    with zipfile.ZipFile(folder / f"{NAME}-javadoc.jar") as jar:
        pages = [name for name in jar.namelist() if name.endswith("OrderlaneConsumer.html")]
        assert pages
        assert not any("/internal/" in name for name in jar.namelist())
