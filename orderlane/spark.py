"""The API for Spark jobs: progress of streaming queries, and the jobs of ``orderlane spark``.

The data source itself needs no import: Spark finds it by its name, ``orderlane``. Needs the extra
``spark``.
"""

from __future__ import annotations

from thin_client.spark.jobs.archive import Archived, archive
from thin_client.spark.jobs.audit import audit, write_audit
from thin_client.spark.jobs.backfill import Plan as BackfillPlan
from thin_client.spark.jobs.backfill import backfill
from thin_client.spark.jobs.compact import compact
from thin_client.spark.jobs.key_profile import Plan as KeyProfilePlan
from thin_client.spark.jobs.key_profile import key_profile, profile_rows
from thin_client.spark.lake.compaction import Compacted
from thin_client.spark.progress import ProgressListener

__all__ = [
    "Archived",
    "BackfillPlan",
    "Compacted",
    "KeyProfilePlan",
    "ProgressListener",
    "archive",
    "audit",
    "backfill",
    "compact",
    "key_profile",
    "profile_rows",
    "write_audit",
]
