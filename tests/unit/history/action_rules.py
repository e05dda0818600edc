"""The rules of a topic with actions, as they appear in a history."""

from __future__ import annotations

from typing import Any

RULES: dict[str, Any] = {
    "order_key": "KEY",
    "visibility_ms": 5000,
    "retry_ms": [1000, 3000],
    "max_deliveries": 3,
    "max_jobs": 10,
    "max_leased": 10,
    "filters": ["tags", "action 2"],
}
