"""Delivery policies of a group: which of several ready messages goes first. Pure."""

from __future__ import annotations

from enum import StrEnum


class HandOut(StrEnum):
    """The policy. Whatever it is, each ready message is delivered within the bound of P8, which
    ``proxy.core.group.group_buffer`` states.
    """

    OLDEST = "oldest"
    """The message that has been ready for longest; followers of a finished one have priority."""
    LONGEST_CHAIN = "longest_chain"
    """The message whose key has most unfinished messages in its queue."""
