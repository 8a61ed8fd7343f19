"""`POST /v1/chat/completions`: whole answers and streams, each recorded and given again as it came."""

from __future__ import annotations

from mmcache.server.answers_stored import flaw, gist, tokens
from mmcache.server.asking import Dialect
from mmcache.server.canonical.chat import chat
from mmcache.server.exchange import Route
from mmcache.server.recording import ChatRecorder
from mmcache.server.reuse import Reuse

PATH = "/v1/chat/completions"
ROUTES: dict[tuple[str, str], Route] = {
    ("POST", PATH): Reuse(Dialect(PATH, chat, flaw, tokens, gist, ChatRecorder, meant=True))
}
