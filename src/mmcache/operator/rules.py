"""What no schema says: fields that must fit each other, and fields that stay as they are.

Each rule is CEL, for servers that have it (1.25 and later; the message with figures, 1.27). For the others, and before
anything is done anyway, the same is asked in Python: `ClusterSpec.faults`, and `changed` here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mmcache.operator.names import LONGEST_NAME
from mmcache.scale.spec import MOST_SHARDS

NAME = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
"""As a Service's: it may neither begin with a digit nor have a dot."""
BAD_NAME = (
    f"metadata.name may have {LONGEST_NAME} letters at most, a-z, 0-9 and -, the first of them a-z: Services, pods and "
    "labels are named after it"
)
FIXED = ("tls", "authSecretRef")
"""Fields of `spec` that cannot come or go: nodes with and without would not talk to each other."""


def fixed_message(name: str) -> str:
    """Of a field of `FIXED`."""
    return (
        f"{name} cannot be set, taken away or changed in a running cluster: nodes with and without would not talk to "
        "each other; make a new cluster and delete this one"
    )


def of_object() -> list[dict[str, Any]]:
    """For the root of the schema."""
    return [
        {
            "rule": f"size(self.metadata.name) <= {LONGEST_NAME} && self.metadata.name.matches('{NAME}')",
            "message": BAD_NAME,
        }
    ]


def of_name(name: str) -> list[str]:
    """What is wrong with it."""
    return [] if len(name) <= LONGEST_NAME and re.fullmatch(NAME, name) else [BAD_NAME]


def of_spec() -> list[dict[str, Any]]:
    """For `spec`. A transition rule holds for updates only."""
    kept = [
        {
            "rule": f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || self.{name} == oldSelf.{name})",
            "message": fixed_message(name),
        }
        for name in FIXED
    ]
    return [
        {
            "rule": "self.maxShards >= self.minShards",
            "message": "maxShards must be at least minShards",
            "messageExpression": f"'maxShards must be minShards..{MOST_SHARDS} (' + string(self.minShards) + "
            f"'..{MOST_SHARDS}), not ' + string(self.maxShards)",
        },
        *kept,
    ]


def of_burst() -> list[dict[str, Any]]:
    """For `spec.burst`."""
    return [
        {
            "rule": "self.endFactor < self.factor",
            "message": "burst.endFactor must be below burst.factor: without the distance shards come and go",
            "messageExpression": "'burst.endFactor must be from 1 to below burst.factor (' + string(self.factor) + "
            "'), not ' + string(self.endFactor) + ': without the distance shards come and go'",
        }
    ]


def changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What an update may not do; `spec` before and after."""
    return [fixed_message(name) for name in FIXED if old.get(name) != new.get(name)]
