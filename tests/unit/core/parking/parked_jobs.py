"""Keys whose messages are all parked."""

from __future__ import annotations

from tests.support.parking_site import ParkingSite


def parked(*keys: str) -> ParkingSite:
    """Return a site with messages of *keys*, all parked and read in the twin."""
    site = ParkingSite()
    site.sent += keys
    for key in set(keys):
        site.read()
        site.read()
        site.park(key)
    site.record_parked()
    for _ in keys:
        site.copy(heard=True)
        site.read_twin()
    assert len(site.copies) == len(keys)
    return site
