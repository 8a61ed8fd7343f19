"""`Fronting`: what a component with a cache in front of another one has, whether that retrieves or answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mmcache.integrations.framework.held import erase
from mmcache.integrations.framework.results import Results


class Fronting:
    """The prompts are those of the component behind."""

    _behind: Any
    _results: Results
    _facts: Callable[[], str]

    def _get_prompts(self) -> dict[str, Any]:
        return dict(self._behind._get_prompts())

    def _get_prompt_modules(self) -> dict[str, Any]:
        return dict(self._behind._get_prompt_modules())

    def _update_prompts(self, prompts: dict[str, Any]) -> None:
        self._behind._update_prompts(prompts)

    def facts_for_keys(self) -> str:
        """What the keys of other caches need to know of it."""
        return f"{self._facts()} {self._results.state()}"

    def forget(self) -> int:
        """Erase what is kept of the present index version, of this tenant; how many blocks there were."""
        results, tenant = self._results, self._results.realm.tenant()
        return 0 if tenant is None else erase(results.realm, tenant, results.name(results.state()))
