"""`Cache.ask` in several real processes: killed while they learn, forked, and told by each other what has changed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from functools import partial
from pathlib import Path

import pytest
from tests.unit.semantic.world import MODEL, WORDINGS, Model, picture, semantic, teach, true_answer

from mmcache import Cache
from mmcache.semantic.prompt import Prompt

ONE, OTHER, _ = WORDINGS["animal"]
ROOT = Path(__file__).resolve().parents[2]


def asking(folder: Path, first: int) -> subprocess.Popen[str]:
    """A process that asks on and on, and prints the number of each picture that it is done with."""
    code = f"""
        import itertools
        from mmcache import Cache
        from mmcache.semantic.prompt import Prompt
        from tests.unit.semantic.world import MODEL, WORDINGS, Model, picture, semantic
        model = Model()
        cache = Cache({str(folder)!r}, semantic=semantic())
        for number in itertools.count({first}):
            for text in WORDINGS["animal"][:2]:
                cache.ask(Prompt(text, pictures=[picture(number)]), model, model=MODEL)
            print(number, flush=True)
    """
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True, cwd=ROOT)


@pytest.mark.slow
def test_a_killed_process_leaves_what_it_learned_and_nothing_wrong(tmp_path: Path) -> None:
    for round_ in range(3):
        workers = [asking(tmp_path, 1000 * (2 * round_ + n)) for n in range(2)]
        for worker in workers:
            assert worker.stdout is not None
            for _ in range(40):
                assert worker.stdout.readline(), "it died by itself"
        for worker in workers:
            worker.send_signal(signal.SIGKILL)
            worker.wait()
            assert worker.stdout is not None
            worker.stdout.close()
        model = Model()
        with Cache(tmp_path, semantic=semantic()) as cache:
            (promise,) = cache.meaning.report()
            assert promise.compared + promise.near >= 20 * (round_ + 1)  # a busy ledger learns less
            assert promise.wrong == promise.compared_wrong == 0
            for number in range(0, 40, 5):
                prompt = Prompt(OTHER, pictures=[picture(1000 * 2 * round_ + number)])
                assert cache.ask(prompt, model, model=MODEL).value == true_answer(prompt)
            cache.check_integrity()


@pytest.mark.slow
def test_a_forked_child_asks_with_a_ledger_of_its_own(tmp_path: Path) -> None:
    model = Model()
    with Cache(tmp_path, semantic=semantic()) as cache:
        teach(partial(cache.ask, answer=model, model=MODEL), model, 60)
        child = os.fork()
        if not child:
            code = 1
            try:
                reply = cache.ask(Prompt(ONE, pictures=[picture(1000)]), model, model=MODEL)
                fresh = cache.ask(Prompt(ONE, pictures=[picture(1)]), model, model=MODEL)
                changed = cache.changed("image", picture(1001))
                code = 0 if (reply.source, fresh.source, changed >= 1) == ("exact", "computed", True) else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert cache.ask(Prompt(ONE, pictures=[picture(1)]), model, model=MODEL).source == "exact"
        assert cache.ask(Prompt(ONE, pictures=[picture(1001)]), model, model=MODEL).source == "computed"
