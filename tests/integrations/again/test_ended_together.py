"""A script that trains in several processes ends as a whole once there are enough steps."""

from __future__ import annotations

import os
import pickle
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from perf_diagnostics.integrations.again import ended_together
from perf_diagnostics.integrations.again.ended_together import EndedTogether
from perf_diagnostics.store.find import list_runs
from tests.integrations.test_run_script import ended_warm
from tests.planted.warm import Asked, WarmStart
from tests.trials.pretended import _NOBODY

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes")


@pytest.fixture
def together(tmp_path: Path) -> EndedTogether:
    return EndedTogether(tmp_path / "pipe")


@pytest.fixture
def says(together: EndedTogether, monkeypatch: pytest.MonkeyPatch) -> Callable[[int, bytes], None]:
    """Tells something as another process does."""

    def tell(pid: int, what: bytes) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(os, "getpid", lambda: pid)
            assert pickle.loads(pickle.dumps(together))._tell(what)

    return tell


def test_all_end_once_the_only_training_has_enough(together: EndedTogether, tmp_path: Path) -> None:
    ended = threading.Event()
    unlink = together.listen(ended.set)
    together.trains()
    assert together._tell(b"-") and ended.wait(30)
    unlink()
    assert not list(tmp_path.iterdir())


def test_who_has_enough_leaves_where_nobody_listens(together: EndedTogether) -> None:
    together.enough()  # else it would wait for ever


def test_a_training_that_has_not_enough_is_waited_for(
    together: EndedTogether, says: Callable[[int, bytes], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    ended, looked = threading.Event(), threading.Event()

    def alive(pid: int) -> bool:
        looked.set()
        assert pid == 2
        return True

    monkeypatch.setattr(ended_together, "_alive", alive)
    together.listen(ended.set)
    says(1, b"+"), says(2, b"+"), says(1, b"-")
    assert looked.wait(30) and not ended.is_set()
    says(2, b"-")
    assert ended.wait(30)


def test_a_training_that_has_died_is_not_waited_for(
    together: EndedTogether, says: Callable[[int, bytes], None]
) -> None:
    ended = threading.Event()
    together.listen(ended.set)
    says(_NOBODY, b"+"), together.trains(), together._tell(b"-")
    assert ended.wait(5)  # and not the 10 s that it would have


def test_a_training_that_waits_for_the_first_does_not_hold_the_others_up(
    together: EndedTogether, says: Callable[[int, bytes], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ended_together, "_LEAST_S", 0.0)
    monkeypatch.setattr(ended_together, "_LOOK_S", 0.001)
    ended = threading.Event()
    together.listen(ended.set)
    together.trains(), says(1, b"-")
    assert ended.wait(30)


TRAINS = """
import sys, torch, torch.multiprocessing as mp

def steps(get, number=100_000_000):
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(number):
        model(get()).mean().backward()
        optimizer.step()
"""

#: What is asked for, and who trains how many steps by then.
SCRIPTS = {
    "a learner whose word is waited for": """
        def learn(batches, learned):
            steps(batches.get, 200)
            learned.put("it has")

        if __name__ == "__main__":
            mp.set_start_method(sys.argv[1])
            batches, learned = mp.Queue(4), mp.Queue()
            mp.Process(target=learn, args=(batches, learned)).start()
            for _ in range(200):
                batches.put(torch.randn(4, 8))
            print(learned.get())
        """,
    "a learner and an actor that are joined": """
        def act(batches):
            while True:
                batches.put(torch.randn(4, 8))

        def learn(batches):
            steps(batches.get)

        if __name__ == "__main__":
            mp.set_start_method(sys.argv[1])
            batches = mp.Queue(4)
            both = [mp.Process(target=one, args=(batches,)) for one in (act, learn)]
            for one in both:
                one.start()
            for one in both:
                one.join()
            print("it goes on")
        """,
    "a learner that another process has started": """
        def learn(learned):
            steps(lambda: torch.randn(4, 8), 200)
            learned.put("it has")

        def coordinate(learned):
            learner = mp.Process(target=learn, args=(learned,))
            learner.start()
            learner.join()

        if __name__ == "__main__":
            mp.set_start_method(sys.argv[1])
            learned = mp.Queue()
            mp.Process(target=coordinate, args=(learned,)).start()
            print(learned.get())
        """,
    "hogwild": """
        def work(model, barrier):
            barrier.wait()  # who has not begun by the time the first one has enough is not waited for
            steps(lambda: torch.randn(4, 8))

        if __name__ == "__main__":
            mp.set_start_method(sys.argv[1])
            model = torch.nn.Linear(8, 1).share_memory()
            barrier = mp.Barrier(2)
            workers = [mp.Process(target=work, args=(model, barrier)) for _ in range(2)]
            for one in workers:
                one.start()
            for one in workers:
                one.join()
            print("it goes on")
        """,
    "who trains and whose actors are joined": """
        def act(batches):
            while True:
                batches.put(torch.randn(4, 8))

        if __name__ == "__main__":
            mp.set_start_method(sys.argv[1])
            batches = mp.Queue(4)
            actor = mp.Process(target=act, args=(batches,))
            actor.start()
            steps(batches.get, 200)
            actor.join()
        """,
}


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("what", list(SCRIPTS))
def test_after_enough_steps_nothing_of_the_script_runs_or_waits(
    tmp_path: Path, what: str, method: str, warm: WarmStart
) -> None:
    (tmp_path / "train.py").write_text(TRAINS + textwrap.dedent(SCRIPTS[what]), encoding="utf-8")
    words = ["run", "--steps", "20", "--name", "enough", "train.py", method]
    (ended,) = ended_warm(warm, Asked(words, os.environ, str(tmp_path)))
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr  # also of its processes: else this would wait
    assert ended.stderr.count("results/enough: ") == 1
    found = [result for run in list_runs(tmp_path / "results") for result in run.read().results]
    assert [(len(one.steps[0].steady), one.stop_reason) for one in found] == [(20, "enough_steps")] * len(found)
    assert len(found) == 1 or (what == "hogwild" and len(found) == 2)
