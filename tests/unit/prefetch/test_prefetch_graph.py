"""Sessions, the behaviour graph and its PageRank."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest

from mmcache.model.errors import SettingsError
from mmcache.prefetch.graph import BehaviourGraph, Candidate, GraphSettings
from mmcache.prefetch.pagerank import LEAST_CHANGES, UNKNOWN, Ranking, pagerank
from mmcache.prefetch.sessions import Sessions

SETTINGS = GraphSettings()


def walked(paths: list[str], settings: GraphSettings = SETTINGS, window: int = 1) -> BehaviourGraph[str]:
    """A graph that learned one session a path, one letter a second."""
    graph: BehaviourGraph[str] = BehaviourGraph(settings)
    sessions: Sessions[str] = Sessions(window=window)
    now = 0.0
    for number, path in enumerate(paths):
        for node in path:
            now += 1.0
            if (earlier := sessions.visit(number, node, now)) is not None:
                graph.observe(node, earlier, now)
    return graph


def test_a_session_is_what_came_before_newest_first() -> None:
    sessions: Sessions[str] = Sessions(window=3)
    assert [sessions.visit("one", node, 0.0) for node in "abcd"] == [(), ("a",), ("b", "a"), ("c", "b", "a")]
    assert sessions.recent("one", 0.0) == ("d", "c", "b")
    assert sessions.recent("two", 0.0) == ()


def test_a_candidate_says_when_it_is_due() -> None:
    """All of them follow within the window, so each is one hop away: what tells them apart is how soon they come."""
    graph = walked(["abcdef"] * 8, window=4)
    found = {one.node: one.lag for one in graph.candidates("a", 48.0)}
    assert {node: round(lag) for node, lag in found.items()} == {"b": 1, "c": 2, "d": 3, "e": 4, "f": 5}
    after = {one.node: one.lag for one in graph.candidates("cba", 48.0)}  # c was looked for last
    assert {node: round(lag) for node, lag in after.items()} == {"d": 1, "e": 2, "f": 3}


def test_a_reload_teaches_nothing() -> None:
    sessions: Sessions[str] = Sessions()
    assert [sessions.visit(1, node, 0.0) for node in "abba"] == [(), ("a",), None, ("b",)]
    assert sessions.recent(1, 0.0) == ("a", "b")


def test_a_session_ends_after_a_gap() -> None:
    sessions: Sessions[str] = Sessions(gap=10.0)
    sessions.visit(1, "a", 0.0)
    assert sessions.visit(1, "b", 10.0) == ("a",)
    assert sessions.recent(1, 20.1) == ()
    assert sessions.visit(1, "c", 20.1) == ()


def test_the_session_that_was_quiet_for_longest_is_forgotten() -> None:
    sessions: Sessions[str] = Sessions(most=2)
    for name in (1, 2, 1, 3):
        sessions.visit(name, f"n{name}", 0.0)
    assert len(sessions) == 2
    assert [bool(sessions.recent(name, 0.0)) for name in (1, 2, 3)] == [True, False, True]


def test_probabilities_are_shares_of_what_was_seen_less_the_doubt() -> None:
    graph = walked(["ab"] * 6 + ["ac"] * 2, replace(SETTINGS, half_life=1e9))
    assert graph.out("a", 24.0) == pytest.approx({"b": 0.6, "c": 0.2}, abs=1e-6)  # of 8, and 2 of doubt
    assert graph.out("b", 24.0) == {}


def test_what_is_old_counts_less_and_is_trusted_less() -> None:
    graph = walked(["ab"] * 8, replace(SETTINGS, half_life=1e6))
    assert graph.out("a", 1e6)["b"] == pytest.approx(4 / (4 + 2), rel=1e-3)
    for _ in range(4):
        graph.observe("a", (), 1e6)
        graph.observe("c", ("a",), 1e6)
    assert graph.out("a", 1e6) == pytest.approx({"b": 0.4, "c": 0.4}, rel=1e-3)


def test_candidates_are_reached_within_three_hops() -> None:
    graph = walked(["abcde"] * 50)
    found = {one.node: one for one in graph.candidates(["a"], 250.0)}
    assert {node: one.hop for node, one in found.items()} == {"b": 1, "c": 2, "d": 3}
    assert found["b"].probability > found["c"].probability > found["d"].probability > 0.8
    assert [one.node for one in graph.candidates(["a"], 250.0, hops=1)] == ["b"]
    assert graph.candidates(["e"], 250.0) == []
    assert graph.candidates(["unknown"], 250.0) == []
    assert graph.candidates([], 250.0) == []


def test_few_observations_promise_little() -> None:
    once, often = walked(["ab"]), walked(["ab"] * 20)
    assert once.candidates(["a"], 40.0)[0].probability == pytest.approx(1 / 3, rel=1e-2)
    assert often.candidates(["a"], 40.0)[0].probability > 0.9


def test_improbable_paths_are_not_followed() -> None:
    graph = walked(["ab"] * 8 + ["ac"], replace(SETTINGS, floor=0.2))
    assert [one.node for one in graph.candidates(["a"], 20.0)] == ["b"]


def test_what_was_looked_for_already_is_no_candidate() -> None:
    graph = walked(["abab", "abca"] * 9, window=2)
    assert {one.node for one in graph.candidates(["b", "a"], 80.0)} == {"c"}


def test_the_newest_says_most() -> None:
    graph = walked(["ax", "by"] * 20)
    found = {one.node: one.probability for one in graph.candidates(["a", "b"], 80.0)}
    assert found["y"] == pytest.approx(SETTINGS.fade * found["x"], rel=0.01)


@pytest.mark.parametrize(("order", "first"), [("rank", "h"), ("probability", "p")])
def test_order(order: str, first: str) -> None:
    paths = ["ap"] * 12 + ["ah"] * 8 + [f"{chr(200 + n)}h" for n in range(60)]
    graph = walked(paths, replace(SETTINGS, order=order))  # type: ignore[arg-type]
    for _ in range(40):
        found = graph.candidates(["a"], 160.0)
    assert found[0].node == first
    ranks = {one.node: one.rank for one in found}
    assert ranks["h"] > ranks["p"] > 0


def test_search_is_bounded_on_a_complete_graph() -> None:
    graph: BehaviourGraph[int] = BehaviourGraph(replace(SETTINGS, floor=1e-9, most_out=64))
    for source in range(64):
        graph.observe(source, [other for other in range(64) if other != source], 0.0)
    found = graph.candidates(list(range(4)), 0.0, hops=3, width=64, most=16)
    assert len(found) == 16
    assert len({one.node for one in found}) == 16


def test_no_edge_from_a_node_to_itself() -> None:
    graph = walked(["aab", "aba"])
    graph.learn("a", "a", 9.0)
    assert "a" not in graph.out("a", 9.0)


def test_of_many_edges_the_heaviest_are_kept() -> None:
    """Space-Saving: what is more than a share 1 / most_out of what follows is never lost, and never overrated."""
    graph: BehaviourGraph[int] = BehaviourGraph(replace(SETTINGS, most_out=8, half_life=1e9, doubt=0.0))
    draw = random.Random(1)
    for number in range(4000):
        graph.observe(0, (), 0.0)
        graph.observe(1 if draw.random() < 0.3 else 1000 + number, (0,), 0.0)
    out = graph.out(0, 0.0)
    assert len(out) == 8
    assert 0.2 < out[1] <= 0.32
    assert all(share <= 0.01 for node, share in out.items() if node != 1)


def test_memory_is_bounded_whatever_comes() -> None:
    bounds = replace(SETTINGS, most_nodes=100, most_edges=300, most_out=5)
    graph: BehaviourGraph[int] = BehaviourGraph(bounds)
    sessions: Sessions[int] = Sessions(most=50)
    draw = random.Random(0)
    for number in range(20_000):
        node = number if draw.random() < 0.5 else draw.randrange(20)
        earlier = sessions.visit(draw.randrange(1000), node, float(number))
        if earlier is not None:
            graph.observe(node, earlier, float(number))
        assert len(graph) <= 100
        assert graph.edges <= 300
    assert graph.edges == sum(len(graph.out(node, 20_000.0)) for node in graph)
    assert len(sessions) == 50
    assert set(range(20)) <= set(graph)  # what comes back is kept
    graph.candidates([1], 20_000.0)


def test_one_node_may_have_more_edges_than_fit() -> None:
    graph: BehaviourGraph[int] = BehaviourGraph(replace(SETTINGS, most_edges=2, most_out=9))
    for target in range(1, 9):
        graph.observe(0, (), 0.0)
        graph.observe(target, (0,), 0.0)
    assert graph.edges <= 9


def test_weights_do_not_overflow() -> None:
    graph = walked(["ab"] * 8, replace(SETTINGS, half_life=1.0))
    now = 0.0
    for _ in range(300):
        now += 37.0
        graph.observe("a", (), now)
        graph.observe("b", ("a",), now)
    assert graph.out("a", now)["b"] == pytest.approx(1 / 3, rel=1e-6)
    graph.observe("c", ("a",), 1e12)
    assert graph.out("a", 1e12) == {}  # all else is forgotten, the node too
    assert list(graph) == ["c"]
    assert graph.edges == 0


def test_a_clock_that_steps_back_changes_nothing() -> None:
    graph = walked(["ab"] * 8)
    before = graph.out("a", 16.0)
    assert graph.out("a", -1e9) == before


def test_forget() -> None:
    graph = walked(["abc"] * 9)
    graph.forget("b")
    graph.forget("b")
    assert graph.edges == 1
    assert [one.node for one in graph.candidates(["a"], 27.0)] == ["b"]


def test_an_edge_that_leads_nowhere_any_more_is_not_believed() -> None:
    """However heavy it is: after some dozens of visits of its source at most."""
    graph = walked(["ab"] * 400, replace(SETTINGS, half_life=1e9))
    visits = 0
    while graph.candidates(["a"], 800.0, hops=1):
        graph.observe("a", (), 800.0)
        visits += 1
    assert 4 <= visits <= 30
    assert graph.out("a", 800.0)["b"] > 0.9  # as far as its long past goes


def test_chance_does_not_end_a_belief() -> None:
    graph: BehaviourGraph[str] = BehaviourGraph(replace(SETTINGS, half_life=1e9))
    draw, believed = random.Random(0), 0
    for _ in range(1000):
        graph.observe("a", (), 0.0)
        if draw.random() < 0.6:
            graph.observe("b", ("a",), 0.0)
        believed += bool(graph.candidates(["a"], 0.0, hops=1))
    assert believed > 980


def test_same_visits_same_candidates() -> None:
    draw = random.Random(3)
    paths = ["".join(draw.choices("abcdefgh", k=6)) for _ in range(80)]
    graphs = [walked(paths, window=3) for _ in range(2)]
    found: list[list[Candidate[str]]] = [[], []]
    for _ in range(30):
        found = [graph.candidates(["a", "b"], 500.0) for graph in graphs]
        assert found[0] == found[1]
    assert found[0]


def test_settings_are_checked() -> None:
    for wrong in ({"half_life": 0.0}, {"floor": 0.0}, {"most_out": 0}, {"doubt": -1.0}, {"fade": 0.0}):
        with pytest.raises(SettingsError):
            replace(SETTINGS, **wrong)
    for wrong in ({"gap": 0.0}, {"most": 0}, {"window": 0}):
        with pytest.raises(SettingsError):
            Sessions(**wrong)


def test_pagerank_is_the_stationary_distribution() -> None:
    draw = np.random.default_rng(0)
    count, edges = 30, 150
    sources, targets = draw.integers(0, count, edges), draw.integers(0, count, edges)
    weights = draw.random(edges)
    ranks = pagerank(sources, targets, weights, count, iterations=500, tolerance=1e-14)
    moves = np.zeros((count, count))
    np.add.at(moves, (sources, targets), weights)
    sums = moves.sum(axis=1, keepdims=True)
    moves = np.where(sums > 0, moves / np.where(sums > 0, sums, 1), 1 / count)
    google = 0.85 * moves + 0.15 / count
    values, vectors = np.linalg.eig(google.T)
    expected = np.real(vectors[:, np.argmax(np.real(values))])
    assert ranks == pytest.approx(expected / expected.sum() * count)
    assert pagerank(sources[:0], targets[:0], weights[:0], 0).shape == (0,)
    assert math.isclose(ranks.mean(), 1.0)


def test_a_ranking_is_refreshed_in_steps() -> None:
    ranking: Ranking[int] = Ranking()
    out = {node: [(0, 1.0)] for node in range(1, 9000)}
    read = 0

    def edges_of(node: int) -> list[tuple[int, float]]:
        nonlocal read
        read += 1
        return out.get(node, [])

    ranking.step(range(9000), 8999, edges_of)
    assert read == 0  # nothing changed
    for _ in range(max(LEAST_CHANGES, 8999 // 4)):
        ranking.changed()
    largest = 0
    for _ in range(60):
        before = read
        ranking.step(range(9000), 8999, edges_of)
        largest = max(largest, read - before)
    assert read == 9000
    assert largest < 5000
    assert ranking[0] > 1000 * ranking[1] > 0
    assert ranking[-1] == UNKNOWN
