"""A recursive-descent parser of filters. The grammar, weakest operator first:

- filter: and (OR and)*
- and: equality (AND equality)*
- equality: comparison (= comparison | <> comparison | IS [NOT] NULL)*
- comparison: unary (> >= < <= unary | [NOT] BETWEEN unary AND unary | [NOT] IN ( text, ... )
  | [NOT] CONTAINS|STARTSWITH|ENDSWITH text)*
- unary: + unary | - unary | NOT unary | text | number | TRUE | FALSE | NULL | property | ( filter )
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from broker_core.broker.sql import nodes
from broker_core.broker.sql.nodes import Filter, Node
from broker_core.broker.sql.tokens import BadFilter, Token, tokens_of
from broker_core.broker.sql.values import order

MAX_CHARS = 8192
#: Depth limit of nested parentheses, NOTs, signs and comparisons of comparisons.
MAX_DEPTH = 32
_INT64 = 1 << 63


@lru_cache(maxsize=1024)
def compile_filter(text: str) -> Filter:
    """Compile *text*; takes about 1 µs for a comparison. Raise BadFilter."""
    if len(text) > MAX_CHARS:
        raise BadFilter(f"the filter has {len(text)} characters: at most {MAX_CHARS}")
    parser = _Parser(text)
    return Filter(parser.parse(), operands=parser.operands)


class _Parser:
    def __init__(self, text: str) -> None:
        self._words = tokens_of(text)
        self._read = [next(self._words)]
        self._at = 0
        self._depth = 0
        self.operands = 0

    def parse(self) -> Node:
        start = self._next
        node = self._or()
        if self._next.kind != "end":
            raise self._bad(self._next, "AND, OR or the end")
        return self._test(node, start)

    # -- words ---------------------------------------------------------------------------------

    @property
    def _next(self) -> Token:
        return self._word(self._at)

    def _word(self, number: int) -> Token:
        while number >= len(self._read):
            self._read.append(next(self._words))
        return self._read[number]

    def _take(self, *kinds: str) -> Token | None:
        """Consume and return the next word if it is one of *kinds*."""
        token = self._next
        if token.kind not in kinds:
            return None
        self._at += 1
        return token

    def _need(self, kind: str, expected: str) -> Token:
        token = self._take(kind)
        if token is None:
            raise self._bad(self._next, expected)
        return token

    def _bad(self, token: Token, expected: str) -> BadFilter:
        return BadFilter(f"character {token.at}: {token} where {expected} is expected")

    def _deeper(self, token: Token) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise BadFilter(f"character {token.at}: nested deeper than {MAX_DEPTH}")

    # -- the grammar ---------------------------------------------------------------------------

    def _or(self) -> Node:
        return self._chain("OR", self._and, decides=True)

    def _and(self) -> Node:
        return self._chain("AND", self._equality, decides=False)

    def _chain(self, word: str, part: Callable[[], Node], *, decides: bool) -> Node:
        start = self._next
        parts = [part()]
        while self._take(word):
            if len(parts) == 1:
                parts[0] = self._test(parts[0], start)
            start = self._next
            parts.append(self._test(part(), start))
        return nodes.fold(parts, decides=decides)

    def _equality(self) -> Node:
        left, depth = self._comparison(), self._depth
        while token := self._take("=", "<>", "IS"):
            self._deeper(token)
            if token.kind == "IS":
                negated = self._take("NOT")
                self._need("NULL", "NULL or NOT NULL")
                left = nodes.equal(left, nodes.literal(None))
                left = nodes.no(left) if negated else left
            else:
                left = self._equal(left, token, self._comparison())
        self._depth = depth
        return left

    def _equal(self, left: Node, token: Token, right: Node) -> Node:
        if any(node.is_literal and node.literal is None for node in (left, right)):
            raise BadFilter(f"character {token.at}: NULL is compared by IS NULL only")
        if left.is_literal and right.is_literal and left.is_test and not right.is_test:
            raise BadFilter(f"character {token.at}: a boolean is compared with another type")
        equal = nodes.equal(left, right)
        return equal if token.kind == "=" else nodes.no(equal)

    def _comparison(self) -> Node:
        left, depth = self._unary(), self._depth
        while True:
            token, negated = self._next, False
            if token.kind == "NOT":
                following = self._word(self._at + 1)
                if following.kind not in ("BETWEEN", "IN", *nodes.PARTS):
                    break
                negated = True
                self._at += 1
                token = following
            if token.kind not in (*nodes.SIZES, "BETWEEN", "IN", *nodes.PARTS):
                break
            self._at += 1
            self._deeper(token)
            left = self._compared(left, token, negated=negated)
        self._depth = depth
        return left

    def _compared(self, left: Node, token: Token, *, negated: bool) -> Node:
        if token.kind == "BETWEEN":
            return self._between(left, token, negated=negated)
        if token.kind == "IN":
            if left.name is None:
                raise BadFilter(f"character {token.at}: IN may follow a property only")
            return nodes.among(left, self._texts(), negated=negated)
        if token.kind in nodes.PARTS:
            text = self._need("text", "a text in quotes")
            return nodes.part(left, token.kind, text.text, negated=negated)
        return self._sized(left, token.kind, self._unary(), token)

    def _sized(self, left: Node, sign: str, right: Node, token: Token) -> Node:
        for node in (left, right):
            is_number = isinstance(node.literal, int | float) and not node.is_test
            if node.is_test or (node.is_literal and not is_number):
                raise BadFilter(
                    f"character {token.at}: {token.text} compares numbers and properties only"
                )
        return nodes.sized(left, sign, right)

    def _between(self, left: Node, token: Token, *, negated: bool) -> Node:
        low = self._unary()
        self._need("AND", "AND between the two limits")
        high = self._unary()
        if negated:
            outside = self._sized(left, "<", low, token), self._sized(left, ">", high, token)
            return nodes.fold(outside, decides=True)
        inside = self._sized(left, ">=", low, token), self._sized(left, "<=", high, token)
        if low.is_literal and high.is_literal and order(high.literal, low.literal) < 0:
            raise BadFilter(f"character {token.at}: the first limit is above the second")
        return nodes.fold(inside, decides=False)

    def _texts(self) -> frozenset[str]:
        self._need("(", "( and texts in quotes")
        texts = [self._need("text", "a text in quotes").text]
        while self._take(","):
            texts.append(self._need("text", "a text in quotes").text)
        self._need(")", ") or a comma")
        return frozenset(texts)

    def _unary(self) -> Node:
        token = self._next
        depth = self._depth
        self._deeper(token)
        self.operands += 1
        node = self._signed(token)
        self._depth = depth
        return node

    def _signed(self, token: Token) -> Node:
        self._at += token.kind != "end"
        match token.kind:
            case "+":
                return self._unary()
            case "-":
                return nodes.negative(self._unary())
            case "NOT":
                start = self._next
                return nodes.no(self._test(self._unary(), start))
            case "(":
                node = self._or()
                self._need(")", ")")
                return node
            case "text":
                return nodes.literal(token.text)
            case "integer":
                return nodes.literal(_integer(token))
            case "decimal":
                return nodes.literal(_decimal(token))
            case "TRUE" | "FALSE":
                return nodes.literal(token.kind == "TRUE")
            case "NULL":
                return nodes.literal(None)
            case "name":
                return nodes.property_of(token.text)
            case _:
                raise self._bad(token, "a property, a text in quotes, a number or (")

    def _test(self, node: Node, start: Token) -> Node:
        """Return *node* as a test."""
        if node.is_test:
            return node
        if node.name is not None:
            return nodes.cast(node)
        raise BadFilter(f"character {start.at}: {start} where a comparison is expected")


def _integer(token: Token) -> int:
    value = int(token.text.rstrip("lL")) if len(token.text) <= 20 else _INT64
    if value >= _INT64:
        raise BadFilter(f"character {token.at}: {token} is above {_INT64 - 1}")
    return value


def _decimal(token: Token) -> float:
    value = float(token.text)
    if value in (0.0, float("inf")):
        raise BadFilter(f"character {token.at}: {token} must be above 0 and finite; write 0 as 0")
    return value
