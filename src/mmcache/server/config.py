"""What `mmcache serve` may be told, all with defaults that are safe for several tenants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Identity = Literal["pixels", "bytes"]
"""Pictures are the same with equal decoded pixels (where no decoder could disagree), or as equal files."""

Mode = Literal["on", "shadow", "off"]


@dataclass(frozen=True)
class RouteRules:
    """Rules of one path, `[routes."/v1/embeddings"]`; what is not said is taken from `[routes.default]`."""

    mode: Mode = "on"
    """`shadow`: look up, always ask upstream, compare, report; `off`: pass through."""
    ttl_seconds: float | None = None
    """How long answers stay; None = the cache's lifetime decides."""
    sampled: bool = False
    """Cache answers of requests that are not deterministic (temperature above 0 and no seed) too."""
    tools: bool = True
    """Cache answers of requests with tools (which are part of the key); False = bypass."""
    identity: Identity = "pixels"
    semantic_max_error: float | None = None
    """Share of wrong answers that near hits may have; None = exact hits only."""
    largest_body_bytes: int = 32 << 20
    most_parts: int = 64
    """Pictures, sounds and videos in a request."""
    pairs: bool = False
    """Of `/rerank` and `/score`: the model scores each pair by itself, so pairs are stored one by one. False = a score
    may rest on the whole list (listwise rerankers), which is stored as one."""
    most_inputs: int = 4096
    """Of a batch: texts to embed, documents to rank."""


@dataclass(frozen=True)
class FetchRules:
    """Media that comes by address, `[fetch]`. Off: such requests go upstream uncached (`remote-media`)."""

    allowed: bool = False
    schemes: tuple[str, ...] = ("https",)
    hosts: tuple[str, ...] = ()
    """Only these, and what ends with one that begins with a dot; () = any public host."""
    private: bool = False
    """Also private, loopback and link-local addresses: only for tests and closed networks."""
    largest_bytes: int = 20 << 20
    timeout_seconds: float = 5.0
    redirects: int = 3


@dataclass(frozen=True)
class TrustRules:
    """Whose request is it, `[trust]`."""

    anonymous: str | None = None
    """The tenant of requests without an API key; None = they are refused with 401."""
    front_token: str | None = field(default=None, repr=False)
    """What a front proxy sends as `x-mmcache-front-token` to be believed when it names the tenant in
    `x-mmcache-tenant`; None = nobody is."""
    front_networks: tuple[str, ...] = ("127.0.0.0/8", "::1/128")
    """Where such a front proxy must stand besides."""
    authority: str | None = "/v1/models"
    """What is asked upstream with a caller's key to learn whether it is still good; None = the upstream asks nobody."""
    authority_seconds: float = 30.0
    """How long its yes is believed; its no is never remembered."""
    harmless_headers: tuple[str, ...] = ()
    """Further request headers that change no answer; all others are part of the realm."""
    region_header: str | None = None
    """A request header that says where a client is (`cloudfront-viewer-country`), believed from `front_networks` only.
    Part of the realm, unless it is called harmless, too."""


@dataclass(frozen=True)
class TelemetryRules:
    """What is told, and whom, `[telemetry]`."""

    otlp: str | None = None
    """Where spans and metrics are sent: `http://localhost:4318`; None = nowhere."""
    token: str | None = field(default=None, repr=False)
    """What is sent there as `authorization: Bearer …`."""
    sample: float = 0.01
    """Share of the requests that are recorded, 0…1. Those whose caller records them are too, within a limit."""
    service: str = ""
    """`service.name`; "" = what the environment says to OpenTelemetry, else `mmcache`."""
    region: str = ""
    """Where this proxy is, and its clients, as far as nobody says better."""
    metrics: Literal["loopback", "token", "open", "off"] = "loopback"
    """Who may read `/metrics`: this machine, or who has the admin token; only the latter; everybody. `off`: it passes
    like every path that is not ours."""
    hot_keys: bool = True
    """Whether it is told which keys are hot: in the cache's folder, for `mmcache hot`, and where spans are sent."""


@dataclass(frozen=True)
class ServerSettings:
    """All of `mmcache serve`'s configuration file."""

    upstream: str
    """Address of what is served in front of: `http://localhost:8000`."""
    kind: Literal["openai", "vllm"] = "openai"
    """`vllm`: media known there is sent as its `uuid` alone."""
    video_uuids: bool = False
    """With `vllm`: videos, too. Only for servers that take no sound from videos (`use_audio_in_video`)."""
    host: str = "127.0.0.1"
    port: int = 8090
    version: str = ""
    """Of the models behind it: part of every key. Change it when weights change under one name."""
    connect_seconds: float = 5.0
    upstream_seconds: float = 600.0
    """Longest silence of the upstream."""
    drain_seconds: float = 30.0
    connections: int = 2048
    """To the upstream, at most."""
    keepalive_seconds: float = 4.0
    """How long an idle connection to the upstream is used again: less than the upstream itself keeps it."""
    largest_answer_bytes: int = 64 << 20
    """Of the upstream, where it is read whole to be stored."""
    rate: float | None = None
    """Requests a second and tenant; None = no limit."""
    at_once: int | None = None
    """Requests of a tenant that are under way; None = no limit."""
    access_log: bool = True
    """A line for each request: route, status, what the cache did, milliseconds; nothing of what was asked."""
    admin_token: str | None = field(default=None, repr=False)
    """What `/mmcache/status`, `/mmcache/switch` and `/mmcache/reload` ask for; None = they are off."""
    webhook_secret: str | None = field(default=None, repr=False)
    """What messages to `/mmcache/webhooks/ragflow` are signed with; None = it is off."""
    routes: Mapping[str, RouteRules] = field(default_factory=dict)
    fetch: FetchRules = FetchRules()
    trust: TrustRules = TrustRules()
    telemetry: TelemetryRules = TelemetryRules()

    @property
    def behind(self) -> str:
        """What computes, for signatures: two servers with a model of one name need not have the same model."""
        return f"{self.kind} {self.upstream} {self.version}"

    def rules(self, path: str) -> RouteRules:
        """The rules of `path`."""
        return self.routes.get(path) or self.routes.get("default") or RouteRules()
