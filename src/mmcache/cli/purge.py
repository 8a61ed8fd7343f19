"""`mmcache purge`, `rekey`: what changes or removes stored blocks."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from mmcache.cli.choose import EVERYTHING, Choice, Matcher
from mmcache.cli.folder import KEY_FILE, SharedUrl, disk_tier, forget_everywhere, require, secret, shared_tier
from mmcache.cli.output import DEFAULT_FOLDER, Exit, Folder, facts, show, size
from mmcache.model.errors import SettingsError

if TYPE_CHECKING:
    from mmcache.semantic.ledger import Population


def purge(
    *,
    choice: Choice = EVERYTHING,
    all: Annotated[bool, Parameter(negative="", show_default=False, help="Remove everything.")] = False,
    dry_run: Annotated[bool, Parameter(negative="", show_default=False, help="Only say what would go.")] = False,
    shared: SharedUrl = None,
    folder: Folder = DEFAULT_FOLDER,
) -> int:
    """Remove blocks for good, by tenant, namespace, model, modality or age, and say how many bytes went.

    The questions that near answers are found by, and what was learned from them, go with their tenant, namespace or
    model. Programs that use the folder forget answers that they hold in memory at their next lookup.

    Blocks on the shared tier (--shared) and in each host's folder are removed one by one; what goes from the shared
    tier is also dropped by the caches that run.

    Example: mmcache purge --tenant acme --older-than 30d
    """
    if choice.everything and not all:
        raise SettingsError("say what to remove: --tenant, --namespace, --model, --modality, --older-than, or --all")
    matches = choice.matcher()
    if shared is not None:
        return _purge_shared(folder, shared, matches, dry_run=dry_run)
    require(folder)
    with disk_tier(folder) as tier:
        if dry_run:
            sizes = [held.size for held in tier.scan() if matches(held)]
            blocks, freed = len(sizes), sum(sizes)
        else:
            blocks, freed = tier.erase(matches)
            forget_everywhere(folder)
    questions = _forget_questions(folder, matches, dry_run=dry_run)
    data = {
        "root": str(folder.path), "dry_run": dry_run, "blocks": blocks, "bytes": freed, "questions": questions,
    }  # fmt: skip
    title = "Would remove" if dry_run else "Removed"
    show(folder, data, lambda: facts(title, {"blocks": blocks, "bytes": size(freed), "questions": questions}))
    return Exit.DONE


def _purge_shared(folder: Folder, url: str, matches: Matcher, *, dry_run: bool) -> int:
    from mmcache.tiers.valkey.feed import Feed

    with shared_tier(folder, url) as tier:
        found = {held.key: held.size for held in tier.scan() if matches(held)}  # it may name a key twice
        if found and not dry_run:
            tier.drop(found)
            Feed(tier.client, origin=b"").tell(keys=list(found))
    blocks, freed = len(found), sum(found.values())
    title = "Would remove" if dry_run else "Removed"
    data = {"dry_run": dry_run, "blocks": blocks, "bytes": freed}
    show(folder, data, lambda: facts(title, {"blocks": blocks, "bytes": size(freed)}))
    return Exit.DONE


def rekey(*, folder: Folder = DEFAULT_FOLDER) -> int:
    """Give a cache folder a new secret and erase every block, since none can be found under the new one.

    Use it when the key file may have leaked. Stop the programs that use the folder first: one that runs keeps the old
    secret until it opens the cache again.

    Example: mmcache rekey --root /var/cache/mmcache
    """
    from mmcache.snapshot import fingerprint

    require(folder)
    with disk_tier(folder) as tier:  # opened first: a folder that cannot be used keeps its secret
        tier.flush()
        (folder.path / KEY_FILE).unlink()
        realm = fingerprint(secret(folder))
        blocks, freed = tier.erase(EVERYTHING.matcher())
    forget_everywhere(folder)
    questions = _forget_questions(folder, EVERYTHING.matcher(), dry_run=False)
    data = {"root": str(folder.path), "realm": realm, "blocks": blocks, "bytes": freed, "questions": questions}
    lines = {
        "new realm secret": realm, "blocks erased": blocks, "bytes erased": size(freed), "questions erased": questions,
    }  # fmt: skip
    show(folder, data, lambda: facts(f"Re-keyed {folder.path}", lines))
    return Exit.DONE


def _forget_questions(folder: Folder, matches: Matcher, *, dry_run: bool) -> int:
    """Remove what `ask` keeps beside its answers: the questions in clear, and what was learned; how many questions."""
    from mmcache.semantic.ledger import FILE, Ledger

    choice = matches.choice
    if choice.everything and not dry_run:
        for part in folder.path.glob(f"{FILE}.damaged-*"):  # set aside, and their texts could still be read
            part.unlink(missing_ok=True)
    if not (folder.path / FILE).is_file() or choice.modality not in (None, "answer"):
        return 0

    def chosen(population: Population) -> bool:
        return (
            choice.tenant in (None, population.tenant)
            and choice.namespace in (None, population.namespace)
            and (choice.model is None or fnmatchcase(population.model, choice.model))
        )

    ledger = Ledger(folder.path)
    try:
        narrowed = (choice.tenant, choice.namespace, choice.model) != (None, None, None)
        return ledger.purge(chosen if narrowed else None, matches.born_before, dry_run=dry_run)
    finally:
        ledger.close()
