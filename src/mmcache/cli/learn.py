"""`mmcache learn`: train what the cache recognises things by on your own data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from mmcache.cli.output import DEFAULT_SPEAK, Exit, Speak, bar, complain, facts, grid, show
from mmcache.model.errors import SettingsError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mmcache.learn.hash_judge import Judged
    from mmcache.learn.lifetime_judge import Judged as Lifetimes

app = App(name="learn", help="Train what the cache recognises things by on your own data.")


@app.command(name="hash")
def learn_hash(
    *,
    pairs: Annotated[Path, Parameter(help="Parquet: a column of features a modality; optional concept, category.")],
    out: Annotated[Path, Parameter(help="The file to write, replaced at once when complete.")] = Path(
        "hash.safetensors"
    ),
    held_out: Annotated[float, Parameter(help="Share of the concepts that is kept back to judge by.")] = 0.2,
    steps: Annotated[
        int | None, Parameter(help="Training steps, 0 = the closed form alone. Default: what suits the pairs.")
    ] = None,
    seed: Annotated[int, Parameter(help="Of the split and the training.")] = 0,
    encoder: Annotated[
        tuple[str, ...],
        Parameter(help="Signature of the encoder that made a modality's features, kept in the file: image=dinov2-…"),
    ] = (),
    speak: Speak = DEFAULT_SPEAK,
) -> int:
    """Learn a semantic hash (US-HASH) from paired features: one 64-bit code for pictures, texts, sounds of one thing.

    Judged on concepts that it was not trained on: mean average precision of the ten nearest, before (untrained) and
    after. Exit code 1, and no file, where nothing was learned: where random pairs would do as well in 1 of 100 draws.

    Example: mmcache learn hash --pairs pairs.parquet --out hash.safetensors
    """
    from dataclasses import replace

    from mmcache.learn.hash_judge import CANDIDATES, learn
    from mmcache.learn.hash_pairs import read
    from mmcache.learn.hash_train import Recipe

    if steps is not None and steps < 0:
        raise SettingsError(f"--steps is 0 or more, not {steps}")
    if not 0 <= seed < 1 << 63:
        raise SettingsError(f"--seed is 0 or more, and below 2^63, not {seed}")
    encoders = _encoders(encoder)
    found = read(pairs)
    if found.left_out:
        complain(f"columns left out: {', '.join(found.left_out)}")
    if unknown := [modality for modality in encoders if modality not in found.pairs.rows]:
        raise SettingsError(f"--encoder names {unknown[0]}, but {pairs} has {', '.join(found.pairs.rows)}")
    recipes = CANDIDATES if steps is None else (replace(Recipe(), steps=steps),)
    with bar(speak) as progress:
        hashed, judged = learn(
            found.pairs, recipes, held_out=held_out, seed=seed, encoders=encoders, progress=progress
        )  # fmt: skip
    if judged.learned:
        hashed.save(out)
    written = str(out) if judged.learned else None
    show(speak, {"rows": found.rows, "file": written, **judged.as_json()}, lambda: _view(judged, found.rows))
    complain(
        f"wrote {out}"
        if judged.learned
        else f"nothing was learned that {judged.kept_back} concepts kept back show, and nothing written: are the rows "
        "really pairs, and enough of them?"
    )
    return Exit.DONE if judged.learned else Exit.NO


@app.command(name="lifetime")
def learn_lifetime(
    *,
    history: Annotated[Path, Parameter(help="Parquet, a row a use: key, time; optional text, image.")],
    out: Annotated[Path, Parameter(help="The file to write, replaced at once when complete.")] = Path(
        "lifetime.safetensors"
    ),
    interval: Annotated[float, Parameter(help="Hours in which uses are counted; four make a day.")] = 6.0,
    hot: Annotated[int, Parameter(help="Uses within a day that make a key hot.")] = 2,
    seed: Annotated[int, Parameter(help="Of the training.")] = 0,
    speak: Speak = DEFAULT_SPEAK,
) -> int:
    """Learn from a history of uses how long keys stay hot: for a day, and for three.

    Trained on the first 55 % of the time, calibrated on the next 20 %, judged on the rest, beside simpler rules. Exit
    code 1, and no file, where it is no better than the rule that what was hot today will be hot.

    Example: mmcache learn lifetime --history uses.parquet --out lifetime.safetensors
    """
    from mmcache.learn.lifetime_judge import learn
    from mmcache.learn.lifetime_read import read
    from mmcache.lifespan.file import save
    from mmcache.lifespan.inputs import LifeScale

    if not 0 <= seed < 1 << 63:
        raise SettingsError(f"--seed is 0 or more, and below 2^63, not {seed}")
    if not (0.0 < interval <= 24 * 366 and hot >= 1):
        raise SettingsError("--interval is a number of hours above 0, and --hot 1 or more")
    uses = read(history)
    with bar(speak) as progress:
        model, judged = learn(uses, LifeScale(interval * 3600.0, hot_uses=hot), seed=seed, progress=progress)
    if judged.learned:
        save(model, out)
    told = {"uses": len(uses.at), "keys": len(uses.text), "file": str(out) if judged.learned else None}
    show(speak, {**told, **judged.as_json()}, lambda: _lifetimes(judged, len(uses.at), len(uses.text)))
    complain(
        f"wrote {out}"
        if judged.learned
        else "nothing written: on later time it is no better than 'as hot as today'. A longer history may do, or what "
        "keys are about (the columns text and image)"
    )
    return Exit.DONE if judged.learned else Exit.NO


def _lifetimes(judged: Lifetimes, uses: int, keys: int) -> RenderableType:
    from rich.console import Group

    scores = [(name, *(f"{100 * score:.1f}" for score in both)) for name, both in judged.f1.items()]
    told = {
        "uses": uses,
        "keys": keys,
        "examples trained on": judged.trained,
        "examples judged": judged.judged,
        "hot after a day, after three": " ".join(f"{share:.0%}" for share in judged.hot),
        "calibration error": " ".join(f"{error:.1%}" for error in judged.errors),
    }
    return Group(facts("History", told), grid("F1 on later time, %", ("rule", "a day", "three days"), scores))


def _encoders(words: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for word in words:
        modality, mark, signature = word.partition("=")
        if not mark or not modality or not signature:
            raise SettingsError(f"--encoder is MODALITY=SIGNATURE, not {word!r}")
        found[modality] = signature
    return found


def _view(judged: Judged, rows: int) -> RenderableType:
    from rich.console import Group

    scores = [
        (f"{one.asked} → {one.known}", one.relevance, f"{100 * one.before:.1f}", f"{100 * one.after:.1f}")
        for one in judged.scores
    ]
    bits = [
        (modality, f"{mean:.2f}", f"{worst:.2f}", f"{alike:.2f}")
        for modality, (mean, worst, alike) in judged.bits.items()
    ]
    return Group(
        facts(
            "Pairs",
            {
                "rows": rows,
                "concepts trained on": judged.trained,
                "kept back": judged.kept_back,
                "random pairs do as well": f"{judged.chance:.1%}",
            },
        ),
        grid("mAP@10 of what was kept back, %", ("asked → found", "relevant", "before", "after"), scores),
        grid("Bits", ("modality", "set, mean", "furthest from half", "correlation"), bits),
    )
