"""The demo's plain parts: what is drawn, what the outcome says, what the page contains. Nothing is encoded."""

import io
import json
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from PIL import Image
from rich.console import Console

from mmcache.lab.demo import run
from mmcache.lab.demo.foresight import steps
from mmcache.lab.demo.manifest import Ask, Manifest, Walks
from mmcache.lab.demo.outcome import Outcome
from mmcache.lab.demo.passes import Passes
from mmcache.lab.demo.records import Lossy, Pass, Record, Step, Visited, load_pass, load_visited, save
from mmcache.lab.demo.report import figure, html, table
from mmcache.lab.demo.screen import screen
from mmcache.lab.demo.stream import OWN_TEXTS, lay
from mmcache.lab.demo.svg import Part, bars, distribution, running_total, stacked
from mmcache.lab.demo.words import size, time
from mmcache.model.errors import SettingsError

ASKS = (
    Ask("image", "new", "a.png"),
    Ask("image", "crop", "a.png", (0, 0, 300, 300)),
    Ask("text", "new", "<b>hello</b>"),
    Ask("image", "re-encoded", "a.bmp"),
)


def records(computed: tuple[int, ...], digests: str = "wxyz") -> tuple[Record, ...]:
    return tuple(
        Record(0.001 + 0.1 * inputs, 4 if ask.box else 1, inputs, 1536, digest)
        for ask, inputs, digest in zip(ASKS, computed, digests, strict=True)
    )


@pytest.fixture
def outcome() -> Outcome:
    plain = Pass(records((1, 4, 1, 1)), 1.0, 0.7)
    first = Pass(records((1, 2, 1, 0)), 1.0, 0.4, 0.1, 0.2, 10_000, 3, 4, {"absent": 4})
    restarted = Pass(records((0, 0, 0, 0)), 0.0, 0.0, 0.01, 0.0, 10_000, 7, 0)
    lossy = Lossy(2, 8000, 1000, 0.1, 0.9, 0.99, 0)
    return Outcome(Manifest(0, True, "media", ASKS, ()), Passes(plain, first, restarted, lossy, (2.0, 1.0, 0.5)))


WALKS = Walks(((("a.png", "b.png"), ("c.png",)),) * 2, (("a.png", "b.png"), ("c.png",)), 3, 0.5)
VISITED = Visited(
    (Step(0, 0.5, False, "x"), Step(0, 0.25, False, "y"), Step(1, 0.25, False, "z")),
    (Step(0, 0.5, False, "x"), Step(0, 0.25, False, "y"), Step(1, 0.001, True, "z")),
    brought=2,
    used=1,
    cancelled=0,
    ahead_seconds=0.5,
    brought_before=0,
    latency_seconds=0.02,
    earlier_seconds=(1.5, 1.25),
)


@pytest.fixture
def foreseen(outcome: Outcome) -> Outcome:
    manifest = msgspec.structs.replace(outcome.manifest, walks=WALKS)
    return replace(outcome, manifest=manifest, passes=replace(outcome.passes, visited=VISITED))


def test_a_visit_is_shown_with_what_it_saved(foreseen: Outcome) -> None:
    rows = {row.id: row.ours for row in foreseen.rows()}
    assert rows["visit/without/warm"] == 0
    assert rows["visit/foreseen/warm"] == pytest.approx(100 / 3)
    assert rows["visit/saved"] == pytest.approx(0.249)
    assert rows["visit/foreseen/longest"] == 0.001
    assert rows["visit/used"] == 50
    told = foreseen.as_json()
    json.dumps(told, allow_nan=False)
    assert told["visits"]["foreseen"]["seconds_by_page"] == pytest.approx([0.75, 0.001])
    assert [told["visits"][name]["earlier_waited_seconds"] for name in ("without", "foreseen")] == [1.5, 1.25]
    assert len(told["simulated"]) == 4
    page = html(foreseen)
    assert "1 of 3 lookups were warm instead of 0" in " ".join(page.split())
    assert page.count("<svg") == 5
    for plot in re.findall(r"<svg.*?</svg>", page, re.S):
        ElementTree.fromstring(plot)
    out = io.StringIO()
    Console(file=out, width=80).print(screen(foreseen))
    shown = " ".join(out.getvalue().split())
    assert "with prefetching, a newcomer waited 751 ms instead of 1 s: 1 of 3 lookups were warm instead of 0" in shown
    assert max(map(len, out.getvalue().splitlines())) <= 80


def test_a_brought_output_that_differs_is_told(foreseen: Outcome) -> None:
    wrong = msgspec.structs.replace(VISITED, foreseen=(*VISITED.foreseen[:2], Step(1, 0.001, True, "!")))
    told = replace(foreseen, passes=replace(foreseen.passes, visited=wrong))
    assert foreseen.ok
    assert not told.ok
    assert told.as_json()["visits"]["unequal_outputs"] == 1
    assert "1 outputs of the two caches differ" in html(told)


def test_a_visit_travels_between_processes(foreseen: Outcome, tmp_path: Path) -> None:
    save(VISITED, tmp_path / "pass.json")
    assert load_visited(tmp_path / "pass.json") == VISITED
    foreseen.manifest.write(tmp_path / "manifest.json")
    assert Manifest.read(tmp_path / "manifest.json") == foreseen.manifest


def test_who_came_while_it_was_being_computed_is_told_apart(foreseen: Outcome) -> None:
    early = (*VISITED.foreseen[:2], Step(1, 0.2, False, "z", joined=True))
    told = replace(foreseen, passes=replace(foreseen.passes, visited=msgspec.structs.replace(VISITED, foreseen=early)))
    assert {row.id: row.ours for row in told.rows()}["visit/joined"] == pytest.approx(100 / 3)
    assert "0 of 3 lookups were warm and 1 under way instead of 0" in _shown(told)


def test_a_prefetcher_that_did_not_help_is_told(foreseen: Outcome) -> None:
    slower = (*VISITED.foreseen[:2], Step(1, 0.5, False, "z"))
    visited = msgspec.structs.replace(VISITED, foreseen=slower)
    told = replace(foreseen, passes=replace(foreseen.passes, visited=visited))
    assert "nothing was saved: 250 ms more waiting" in html(told)


def test_a_first_page_that_took_longer_by_chance_is_no_saving(foreseen: Outcome) -> None:
    lucky = (Step(0, 0.1, False, "x"), *VISITED.foreseen[1:])
    told = replace(foreseen, passes=replace(foreseen.passes, visited=msgspec.structs.replace(VISITED, foreseen=lucky)))
    assert {row.id: row.ours for row in told.rows()}["visit/saved"] == pytest.approx(0.249)
    assert told.as_json()["visits"]["saved_seconds"] == pytest.approx(0.249)
    assert "249 ms of waiting were saved after the first page" in " ".join(html(told).split())


def test_the_report_names_the_prefetcher_that_was_used(foreseen: Outcome) -> None:
    page = html(foreseen)
    assert "latency_seconds=0.02" in page
    assert not any("prefetch=" in row.metric for row in foreseen.rows())


def test_nothing_was_brought(foreseen: Outcome) -> None:
    idle = msgspec.structs.replace(VISITED, foreseen=VISITED.without, brought=0, used=0)
    told = replace(foreseen, passes=replace(foreseen.passes, visited=idle))
    assert "visit/used" not in {row.id for row in told.rows()}
    assert "0 blocks brought" in _shown(told)


def _shown(outcome: Outcome) -> str:
    out = io.StringIO()
    Console(file=out, width=80).print(screen(outcome))
    return " ".join(out.getvalue().split())


def test_hits_are_counted_by_group(outcome: Outcome) -> None:
    kinds = outcome.by_kind(outcome.passes.first)
    assert (kinds["crop"].part, kinds["crop"].ratio) == (1, 0.5)
    assert kinds["re-encoded"].hit == 1
    assert kinds["new"].ratio == 0
    assert list(outcome.by_modality(outcome.passes.first)) == ["pictures", "texts"]


def test_a_wrong_hit_is_told(outcome: Outcome) -> None:
    assert outcome.ok
    assert outcome.unequal == 0
    wrong = replace(
        outcome.passes, restarted=msgspec.structs.replace(outcome.passes.restarted, records=records((0,) * 4, "wxyw"))
    )
    told = replace(outcome, passes=wrong)
    assert told.unequal == 1
    assert not told.ok
    assert not told.as_json()["equal"]
    assert "1 of 8 cached outputs differ" in html(told)


@pytest.mark.parametrize("broken", [{"largest_share": 1.1}, {"computed_again": 1}])
def test_a_broken_bound_is_told(outcome: Outcome, broken: dict[str, float]) -> None:
    lossy = msgspec.structs.replace(outcome.passes.lossy, **broken)
    assert not replace(outcome, passes=replace(outcome.passes, lossy=lossy)).ok


def test_rows_have_targets_and_the_restart_counts_all_that_was_waited_for(outcome: Outcome) -> None:
    rows = {row.id: row for row in outcome.rows()}
    assert rows["restart/speedup"].target == 10
    assert rows["restart/speedup"].ours == pytest.approx((0.404 + 0.3) / (0.004 + 0.01))
    assert rows["restart/whole-process"].ours == 2.0
    assert rows["int4/bytes"].ours == pytest.approx(25.0)
    json.dumps(outcome.as_json(), allow_nan=False)


def test_page_needs_nothing_from_elsewhere(outcome: Outcome) -> None:
    page = html(outcome)
    assert not re.search(r"(src|href)=|url\(|@import|<script", page)
    assert set(re.findall(r"https?://\S+?\"", page)) == {'http://www.w3.org/2000/svg"'}
    assert "prefers-color-scheme: dark" in page
    for plot in re.findall(r"<svg.*?</svg>", page, re.S):
        ElementTree.fromstring(plot)
    assert page.count("<svg") == 4


def test_figure_stands_alone(outcome: Outcome, foreseen: Outcome) -> None:
    drawn = ElementTree.fromstring(figure(outcome))
    assert drawn.find("{http://www.w3.org/2000/svg}style") is not None
    both = ElementTree.fromstring(figure(foreseen))
    assert both.find("{http://www.w3.org/2000/svg}style") is not None
    assert len(both.findall("{http://www.w3.org/2000/svg}svg")) == 2


def test_stacked_drawings_do_not_overlap() -> None:
    one = bars("t", [("a", [Part(1.0, "first", "x")], "")])
    both = ElementTree.fromstring(stacked("t", [one, one]))
    first, second = both
    assert float(second.get("y", 0)) >= float(first.get("height", 0)) > 0
    assert float(both.get("viewBox", "").split()[3]) == float(second.get("y", 0)) + float(second.get("height", 0))


def test_plots_escape_and_survive_nothing() -> None:
    assert "&lt;x&gt;" in bars("t", [("<x>", [Part(0.0, "first", "none")], "")])
    assert "polyline" in distribution("t", [("one", "first", [0.5])])
    assert "polyline" in running_total("t", [("one", "first", [0.5, 0.1])])
    assert "&lt;i&gt;" in table(("h",), [("<i>",)])


def test_words_for_people() -> None:
    assert [size(0), size(1536), size(2.5e9)] == ["0 B", "1.54 KB", "2.5 GB"]
    assert [time(0), time(2e-5), time(0.0123), time(75.0)] == ["0 s", "20 µs", "12.3 ms", "75 s"]


def test_screen_fits_a_terminal(outcome: Outcome) -> None:
    out = io.StringIO()
    Console(file=out, width=80).print(screen(outcome))
    assert "bit-equal" in out.getvalue()
    assert max(map(len, out.getvalue().splitlines())) <= 80


def test_results_travel_between_processes(outcome: Outcome, tmp_path: Path) -> None:
    save(outcome.passes.first, tmp_path / "pass.json")
    assert load_pass(tmp_path / "pass.json") == outcome.passes.first
    outcome.manifest.write(tmp_path / "manifest.json")
    assert Manifest.read(tmp_path / "manifest.json") == outcome.manifest


def test_a_used_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "left").touch()
    with pytest.raises(SettingsError, match="not empty"):
        run(root=tmp_path)


@pytest.fixture(scope="module")
def laid(tmp_path_factory: pytest.TempPathFactory) -> tuple[Manifest, Manifest]:
    return tuple(lay(tmp_path_factory.mktemp("media"), quick=True) for _ in range(2))  # type: ignore[return-value]


def test_stream_is_the_same_for_a_seed(laid: tuple[Manifest, Manifest]) -> None:
    one, two = laid
    assert one.asks == two.asks
    for name in {ask.source for ask in one.asks if ask.modality != "text"}:
        assert (Path(one.media) / name).read_bytes() == (Path(two.media) / name).read_bytes()


def test_walks_are_the_same_for_a_seed_and_memory_holds_a_third(laid: tuple[Manifest, Manifest]) -> None:
    one, two = (manifest.walks for manifest in laid)
    assert one is not None
    assert one == two
    shown = {name for walk in one.earlier for page in walk for name in page}
    assert len(shown) > 2 * one.held
    assert {name for page in one.newcomer for name in page} <= shown
    assert all((Path(laid[0].media) / name).is_file() for name in shown)
    assert steps(one) == 2 * sum(len(page) for walk in (*one.earlier, one.newcomer) for page in walk)


def test_stream_has_every_kind(laid: tuple[Manifest, Manifest]) -> None:
    kinds = {ask.kind for ask in laid[0].asks}
    assert kinds == {"new", "repeat", "re-encoded", "resized", "crop", "respelled"}
    assert {ask.modality for ask in laid[0].asks} == {"image", "text", "audio"}


def test_re_encoded_files_have_other_bytes_and_equal_pixels(laid: tuple[Manifest, Manifest]) -> None:
    media = Path(laid[0].media)
    pairs = 0
    for ask in laid[0].asks:
        if ask.modality == "image" and ask.kind == "re-encoded":
            copy = media / ask.source
            original = copy.with_suffix(".png")
            if not original.exists():
                original = media / (copy.stem.removeprefix("shape-") + ".png")
            with Image.open(copy) as one, Image.open(original) as other:
                assert one.convert("RGB").tobytes() == other.convert("RGB").tobytes()
            assert copy.read_bytes() != original.read_bytes()
            pairs += 1
    assert pairs


def test_own_texts_differ_between_their_unicode_forms() -> None:
    from unicodedata import normalize

    assert all(normalize("NFC", text) != normalize("NFD", text) for text in OWN_TEXTS)
