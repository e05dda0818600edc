"""Texts keep a few sharp rules of the style guide."""

from __future__ import annotations

import pytest

from tools.lint.wording import PHRASES, Phrase, found


def phrases(path: str, text: str) -> list[tuple[int, str]]:
    return [(each.line, each.text.split(":")[0]) for each in found(path, text)]


@pytest.mark.parametrize("phrase", PHRASES, ids=lambda phrase: phrase.words)
def test_each_phrase_is_found_in_every_kind_of_text(phrase: Phrase) -> None:
    words = " ".join(part.split("|")[0] for part in phrase.words.split())
    for path, text in {
        "a.md": f"One.\n{words} here.",
        "a.py": f"x = 1\n# A comment with {words}.\n",
        "b.py": f'x = 1\ny = f"{{x}} {words} here"\n',
        "c.py": f'"""Doc.\n\n    {words}.\n"""\n',
        "a.go": f"package a\n// A comment with {words}.",
        "a.html": f"<p>\n{words}</p>",
    }.items():
        assert [quoted for _, quoted in phrases(path, text)] == [f"'{words}'"], path


def test_a_phrase_across_lines_is_found_at_its_first_line() -> None:
    assert phrases("a.py", "x = 1\n# The broker is\n# told of it.\n")[0][0] == 2
    assert phrases("a.md", "One\ntwo so\nmany.") == [(2, "'so\nmany'")]


def test_code_is_not_text() -> None:
    assert phrases("a.py", "nobody = bears(anew)\n") == []
    assert phrases("a.py", 'x = {"nobody": 1}\n') == []
    assert phrases("a.md", "The field `anew`.") == []
    assert phrases("a.md", "Text.\n\n```python\nnobody = 1\n```\n") == []
    assert phrases("a.md", "```\ncode\n```\nnobody") == [(4, "'nobody'")]


def test_words_that_contain_a_phrase_are_no_phrase() -> None:
    assert phrases("a.md", "The bearer amended a reborn story.") == []


@pytest.mark.parametrize("opening", ["What a group reads.", "Who holds it.", "Whose it is."])
def test_a_docstring_starts_with_a_noun_or_an_imperative(opening: str) -> None:
    text = f'def f():\n    """{opening}"""\n'
    assert phrases("a.py", text) == [(2, f"docstring starts with '{opening.split()[0]}'")]
    assert phrases("a.py", 'def f():\n    """Return what it reads."""\n') == []


def test_another_string_may_start_as_it_likes() -> None:
    assert phrases("a.py", 'x = "What now?"\n') == []
