"""Any order of asking, changing, invalidating and reopening: every answer is right for what it rests on now."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import settings, target
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.unit.semantic.world import MODEL, WORDINGS, meaning_of, picture, semantic, trust

from mmcache import Cache
from mmcache.semantic.prompt import Prompt
from mmcache.semantic.settings import Reply

DOCUMENTS = ("manual", "faq")
texts = st.sampled_from([*WORDINGS["animal"][:2], *WORDINGS["animal"], *WORDINGS["colour"], *WORDINGS["serial"]])
pictures = st.sampled_from([(0,), (1,), (0,), (1,), (0, 1), (1, 0)])
rests_on = st.sampled_from([(), (), ("manual",), ("faq", "manual")])
tenants = st.sampled_from(["anna", "berta"])


class Asking(RuleBasedStateMachine):
    """The model's answer names all that it rests on, and in which edition. Wordings of one meaning have one answer."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.editions: dict[tuple[str, str, object], int] = {}
        self.near = self.asked = 0

    def open(self) -> None:
        self.cache = Cache(Path(self.folder.name), semantic=semantic(check_share=0.01))
        for tenant in "anna", "berta":
            trust(self.cache, tenant=tenant)

    @initialize()
    def learned(self) -> None:
        self.open()

    def truth(self, tenant: str, text: str, numbers: tuple[int, ...], documents: tuple[str, ...]) -> str:
        editions = [self.editions.get((tenant, "document", name), 0) for name in sorted(documents)]
        seen = [(number, self.editions.get((tenant, "image", number), 0)) for number in numbers]
        return f"{tenant} {meaning_of(text)} {sorted(documents)} {editions} {seen}"

    @rule(tenant=tenants, text=texts, numbers=pictures, documents=rests_on)
    def ask(self, tenant: str, text: str, numbers: tuple[int, ...], documents: tuple[str, ...]) -> None:
        right = self.truth(tenant, text, numbers, documents)
        prompt = Prompt(text, pictures=[picture(number) for number in numbers], documents=documents)
        reply: Reply = self.cache.ask(prompt, lambda prompt: right, model=MODEL, tenant=tenant)
        assert reply.value == right
        self.near += reply.source == "near"
        self.asked += 1

    @rule(tenant=tenants, name=st.sampled_from(DOCUMENTS))
    def document_changes(self, tenant: str, name: str) -> None:
        self.editions[tenant, "document", name] = self.editions.get((tenant, "document", name), 0) + 1
        self.cache.changed("document", name, tenant=tenant)

    @rule(tenant=tenants, number=st.integers(0, 1))
    def picture_changes(self, tenant: str, number: int) -> None:
        self.editions[tenant, "image", number] = self.editions.get((tenant, "image", number), 0) + 1
        self.cache.changed("image", picture(number), tenant=tenant)

    @precondition(lambda self: self.asked > 10)
    @rule()
    def reopen(self) -> None:
        self.asked = 0
        self.cache.close()
        self.open()

    @invariant()
    def whole(self) -> None:
        if hasattr(self, "cache"):
            self.cache.check_integrity()

    def teardown(self) -> None:
        target(float(self.near), label="near hits")
        self.cache.close()
        self.folder.cleanup()


TestAsking = Asking.TestCase
TestAsking.settings = settings(max_examples=8, stateful_step_count=60, deadline=None)
