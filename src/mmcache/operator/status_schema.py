"""The schema of a resource's `status`: what `status.told` writes."""

from __future__ import annotations

from typing import Any

from mmcache.scale.status import Phase


def status() -> dict[str, Any]:
    """OpenAPI v3 as Kubernetes takes it."""
    whole: dict[str, Any] = {"type": "integer", "format": "int64"}
    number, text = {"type": "number"}, {"type": "string"}
    condition = {
        "type": "object",
        "required": ["type", "status", "lastTransitionTime", "reason", "message"],
        "properties": {
            "type": {"type": "string", "maxLength": 316},
            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "reason": {"type": "string", "maxLength": 1024},
            "message": {"type": "string", "maxLength": 32_768},
            "lastTransitionTime": {"type": "string", "format": "date-time"},
            "observedGeneration": whole,
        },
    }
    return {
        "type": "object",
        "properties": {
            "phase": {"type": "string", "enum": [str(phase) for phase in Phase]},
            "observedGeneration": whole,
            "shards": {**whole, "description": "Primaries that serve slots."},
            "wanted": {**whole, "description": "Shards that the load asks for."},
            "nodes": whole,
            "readyNodes": whole,
            "qps": {**number, "description": "Requests a second over the burst's window."},
            "baselineQps": {**number, "description": "What is usual at this time of the day."},
            "hitRatio": {**number, "description": "Of lookups at the nodes, those of puts too."},
            "keys": whole,
            "usedBytes": whole,
            "maxBytes": whole,
            "progress": {
                "type": "object",
                "description": "Of a scaling, all of it: slots. An operator that starts anew begins at 0.",
                "properties": {
                    "moved": whole,
                    "total": whole,
                    "told": {**text, "description": "Both, such as 3072/7372."},
                },
            },
            "reason": text,
            "message": text,
            "address": {**text, "description": "What a cache is given as `shared=`."},
            "selector": {**text, "description": "Of the pods, for the scale subresource."},
            "conditions": {
                "type": "array",
                "items": condition,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
            },
        },
    }
