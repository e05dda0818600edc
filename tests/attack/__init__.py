"""Attacks on real processes: each row of SECURITY.md, and damage to the files of an installation.

A module of this package has the attacks on one area. An attack is a function that starts the
processes that it needs, attacks them, and fails by AssertionError if their answer is wrong::

    @attack("an unsigned group at the nameserver", answer="ignored by every proxy, on record")
    def unsigned_group(at: Installation) -> str:
        proxy = at.start_all(settings={"group_store": "nameserver"})
        ...
        assert at.groups() == before
        return "0 of 200 values believed"

The function may be ``async def``. It returns its figure: what was measured, in a few words, with
units. The first argument of ``attack`` is the text of SECURITY.md's first column, so that a test
can compare both; ``also`` names further rows that the same attack shows.
"""
