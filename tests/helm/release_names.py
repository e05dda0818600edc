"""Names of releases that Helm accepts, and that are hard on the names of objects."""

from __future__ import annotations

#: Of YAML, with dots and leading digits, with the chart's own words, as long as Helm accepts them,
#: and pairs that a careless rule would make equal.
RELEASES = (
    *("a", "9", "007", "1e3", "0x1f", "true", "null", "no"),
    *("orderlane", "a-orderlane", "orderlane-a", "orderlane-orderlane", "orderlane.orderlane"),
    *("proxy", "a-orderlane-proxy", "orderlane-proxy", "broker-0", "a-orderlane-broker"),
    *("a.b", "a-b", "1.2.3", "v1.0.0-rc.1", "x--y", "r-9", "r-1-2-3"),
    *("a" * 53, "a" * 52 + "b", "a" * 50 + "-b", "a" * 50 + "-c", "0" * 53, "1" + "0" * 52),
    *("a" * 30, "a" * 31, "a" * 32, "a." * 26 + "b", "a-" * 26 + "b", "b" * 30 + "-" * 9 + "b"),
)
