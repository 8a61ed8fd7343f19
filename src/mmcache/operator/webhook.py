"""Refuses bad resources before they are stored, on servers that do not know CEL."""

from __future__ import annotations

import base64
from typing import Any

from mmcache.operator.names import GROUP, PLURAL, VERSION

ID = "validate"
"""Of the handler, and so the path of its URL."""
_WAIT_SECONDS = 5


def configuration(
    name: str = "mmcache-operator", *, ca: str, url: str = "", service: tuple[str, str] | None = None,
    port: int = 443, fail: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """A ValidatingWebhookConfiguration.

    ca: PEM. url: such as https://127.0.0.1:9443; else service: namespace and name. fail: refuse everything while the
    operator is away; by default it is let through, since the operator does nothing for a bad resource but to say why.
    """
    client: dict[str, Any] = {"caBundle": base64.b64encode(ca.encode()).decode()}
    if service is None:
        client["url"] = f"{url}/{ID}"
    else:
        client["service"] = {"namespace": service[0], "name": service[1], "path": f"/{ID}", "port": port}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [
            {
                "name": f"{ID}.{GROUP}",
                "rules": [
                    {"apiGroups": [GROUP], "apiVersions": [VERSION], "resources": [PLURAL], "scope": "Namespaced",
                     "operations": ["CREATE", "UPDATE"]}
                ],
                "clientConfig": client,
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "timeoutSeconds": _WAIT_SECONDS,
                "failurePolicy": "Fail" if fail else "Ignore",
                "matchPolicy": "Equivalent",
            }
        ],
    }  # fmt: skip
