"""The C++ library, installed from its source archive, found by CMake and by pkg-config."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from tests.packages.pages import Page
from tests.packages.projects import assert_quick_start, need, run, serve_orders
from thin_client import Producer
from tools.release import clients
from tools.versions import release_version

pytestmark = [pytest.mark.sockets, pytest.mark.timeout(900)]

#: A program that reads an absent value, or past an end, ends.
CHECKED = "-D_GLIBCXX_ASSERTIONS -Wall -Wextra -Werror"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home folder with the installation, made by the commands of the README."""
    need("cpp")
    folder = tmp_path_factory.mktemp("cpp")
    (packed,) = clients.cpp_sources(folder, {}).values()
    with tarfile.open(packed) as archive:
        archive.extractall(folder, filter="data")
    page = Page("thin_client/cpp/README.md", "")
    enter, *commands = page.commands("Install")
    assert enter == "cd thin_client/cpp"
    for command in commands:
        run(command, folder / f"orderlane-cpp-{release_version()}", {"HOME": str(folder)})
    assert not list(folder.rglob("orders.cpp.o"))  # no example without tests
    moved = tmp_path_factory.mktemp("home")
    (folder / "orderlane").rename(moved / "orderlane")
    return moved


def test_the_quick_start_of_the_readme(home: Path, gateway: str, project: Path) -> None:
    """With CMake and with pkg-config. One message has no key."""
    page = Page("thin_client/cpp/README.md", gateway)
    page.write(project)
    variables = {"HOME": str(home), "CXXFLAGS": CHECKED}
    *by_cmake, program, find, compile_it = page.commands("Quick start")
    for command in by_cmake:
        run(command, project, variables)
    assert_quick_start(run(program, project, variables), keys=3)
    checked = compile_it.replace("-std=c++20", f"-std=c++20 {CHECKED}")
    file = project / "quickstart.cpp"
    file.write_text(file.read_text().replace("++seen == 10", "++seen == 11"))
    run(f"{find}\n{checked}", project, variables)
    with Producer(gateway) as producer:
        producer.send("cpp-orders", b"without a key")
    output = run("./quickstart", project, variables)
    assert "- without a key" in output.splitlines()


def test_the_program_for_those_who_come_from_librdkafka(
    home: Path, gateway: str, project: Path
) -> None:
    page = Page("docs/from-librdkafka.md", gateway)
    page.write(project)
    find = Page("thin_client/cpp/README.md", gateway).commands("Quick start")[-2]
    flags = "$(pkg-config --cflags --libs orderlane)"
    command = f"{find}\ng++ -std=c++20 {CHECKED} billing.cpp {flags} -o billing"
    run(command, project, {"HOME": str(home)})
    serve_orders([str(project / "billing")], project, gateway)


def test_the_package_is_complete(home: Path) -> None:
    licence = home / "orderlane/share/doc/orderlane/LICENSE"
    assert "Apache License" in licence.read_text()
    find = Page("thin_client/cpp/README.md", "").commands("Quick start")[-2]
    said = run(f"{find}\npkg-config --modversion orderlane", home, {"HOME": str(home)})
    assert said == f"{release_version()}\n"
