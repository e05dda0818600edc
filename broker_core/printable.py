"""Text that a terminal or a log viewer shows as it is: escapes for everything else. Pure.

Keys, reasons, names and error texts may come from strangers. An escape sequence in them would
command the terminal of an operator, a newline would forge a log line, and a change of the writing
direction (bidi override) would reorder what the operator reads.
"""

from __future__ import annotations


def printable(text: str, keep: str = "") -> str:
    """Escape characters of *text* that are neither printable nor in *keep*.

    Escapes have the form that shells read in ``$'…'``.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() or each in keep else _escape(each) for each in text)


def printable_json(document: str) -> str:
    """Escape such characters of a JSON *document*, all of which are in strings, for JSON.

    The document keeps its content; *document* has no line breaks outside of strings.
    """
    if document.isprintable():
        return document
    return "".join(each if each.isprintable() else _json_escape(each) for each in document)


def _escape(sign: str) -> str:
    if sign in "\n\t":
        return {"\n": "\\n", "\t": "\\t"}[sign]
    place = ord(sign)
    if place < 0x80:
        return f"\\x{place:02x}"
    return f"\\u{place:04x}" if place < 0x10000 else f"\\U{place:08x}"


def _json_escape(sign: str) -> str:
    units = sign.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
