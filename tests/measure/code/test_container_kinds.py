"""What containers a file makes of its names, by its source."""

from __future__ import annotations

from pathlib import Path

import pytest

from perf_diagnostics.measure.code.code_places import CodePlaces
from perf_diagnostics.measure.code.container_kinds import container_kinds, kinds_in


@pytest.mark.parametrize(
    ("source", "kinds"),
    [
        ("q = deque(maxlen=4)", {"q": "deque"}),
        ("self.q = collections.deque()", {".q": "deque"}),
        ("q: deque[int] = make()", {"q": "deque"}),
        ("def f(q: Deque[int], n): pass", {"q": "deque"}),
        ("q = None\nq = [1, 2]", {"q": "list"}),
        ("q = [x for x in y]\nq += [3]", {"q": "list"}),
        ("seen = defaultdict(list)", {"seen": "dict"}),
        ("df = pd.read_csv(path)", {"df": "DataFrame"}),
        ("q = deque()\nq = list(q)", {}),  # sometimes the one, sometimes the other
        ("q = deque()\nq = load()", {}),
        ("q = []\nfor q in several: pass", {}),
        ("q = []\nq, x = f()", {}),
        ("q = []\nwhile q:\n    q = q[4:]", {"q": "list"}),
        ("q = []\nwhile q:\n    first, q = q[:4], q[4:]", {"q": "list"}),
        ("q, seen, x = [], set(), f()", {"q": "list", "seen": "set"}),
        ("(q, (seen, x)) = deque(), ({}, 3)", {"q": "deque", "seen": "dict"}),
        ("q = []\nq, *x = [], 3", {}),
        ("q = []\nq = other[4:]", {}),
        ("x = y.T\nx = x[2:].contiguous()", {}),
        ("q = []\nclass A:\n    def __init__(self):\n        self.q = set()", {"q": "list", ".q": "set"}),
        ("bank = zeros(0)\nfor x in data:\n    bank = torch.cat([bank, x])", {"bank": "collected"}),
        ("for x in data:\n    bank = torch.cat([bank, x])\n    y = f(bank)", {"bank": "grown"}),
        ("for layer in layers:\n    x = torch.cat([x, layer(x)], 1)", {"x": "grown"}),
        ("while True:\n    if a:\n        seen = np.append(seen, 1)", {"seen": "collected"}),
        (
            "for e in range(3):\n    p = zeros(0)\n    for x in data:\n        p = torch.cat((p, x))",
            {"e": "counter", "p": "collected"},
        ),
        ("def f(self, x):\n    self.bank = torch.cat([self.bank, x])", {".bank": "grown"}),
        ("for i in n:\n    all_ = all_ + [i]", {"all_": "collected"}),
        ("def f(self, x):\n    self.bank = torch.cat([self.bank[len(x):], x])", {".bank": "window"}),
        (
            "def f(self, x):\n    self.bank = torch.cat([self.bank, x], 0)[-self.bank.shape[0]:].contiguous()",
            {".bank": "window"},
        ),
        ("for x in data:\n    last = np.roll(last, -1, axis=0)\n    last[-1] = x", {"last": "window"}),
        (
            "def f(self, x):\n    q = torch.cat([x, self.bank])[:9]\n    self.bank = F.normalize(q, dim=1)",
            {".bank": "window", "q": "window"},
        ),
        ("def f(self, x):\n    q = torch.cat([x, self.bank])\n    self.bank = q", {".bank": "grown", "q": "grown"}),
        ("def f(self, x):\n    q = torch.cat([x, self.bank])[:9]\n    self.other = q", {}),
        ("def f(self, x):\n    q = torch.cat([x, self.bank])[:9]\n    q = g(q)\n    self.bank = q", {}),
        ("for x in data:\n    rows = torch.cat([x[:1], x[1:]])", {}),
        ("for x in data:\n    bank = fresh()\n    bank = torch.cat([bank[1:], x])", {}),
        ("for x in data:\n    x = torch.cat([x, x.flip(0)])", {}),  # another one in each turn
        ("for up in ups:\n    x = up(x)\n    x = torch.cat([x, skip], 1)", {}),
        ("def f(x, skip):\n    x = torch.cat([x, skip], 1)", {}),
        ("x = torch.cat([x, y])", {}),
        ("for i in n:\n    x = relu(x)", {}),
        ("for t in reversed(range(n)):\n    pass", {"t": "counter"}),
        ("for i, x in enumerate(data):\n    y = [j for j in range(i)]", {"i": "counter", "j": "counter", "y": "list"}),
        ("for t in times:\n    pass\nfor t in range(3):\n    pass", {}),
        ("x = torch.tensor(df[names].values, dtype=torch.float32)", {"x": "columns"}),
        ("self.x = torch.from_numpy(df.to_numpy(np.float32))", {".x": "columns"}),
        ("x = df.drop(columns='y').values.astype(np.float32)", {"x": "columns"}),
        ("x = table.T", {"x": "columns"}),
        ("x = torch.stack(several).transpose(0, 1).float()", {"x": "columns"}),
        ("x = torch.tensor(df['y'].values)", {}),  # a single column
        ("x = np.ascontiguousarray(df.values)", {}),
        ("x = torch.from_numpy(df.values).contiguous()", {}),
        ("x = list_of(d.values())", {}),
        ("x = d.values()", {}),
        ("x = torch.tensor(df.values)\nx = x.contiguous()", {}),
        ("x, *y = zip(*batch)\nx = torch.tensor(x, dtype=torch.long).to(device)", {"x": "tuple"}),
        ("x, y = list(zip(*batch))", {"x": "tuple", "y": "tuple"}),
        ("x, y = zip(a, b)", {}),  # an item of each
        ("rows = []\nrows = np.stack(rows)", {"rows": "list"}),
        ("rows = []\nrows = process(rows)", {}),
        ("batch = Transition(*zip(*items))", {"batch": "zipped"}),
        ("batch = Transition(*items)", {}),
        ("x = (", {}),
        ("\0", {}),
        ("", {}),
    ],
)
def test_a_name_that_is_made_one_kind_of_container_is_told(source: str, kinds: dict[str, str]) -> None:
    assert container_kinds(source) == kinds


def test_of_a_line_its_own_names_are_told() -> None:
    kinds = {"q": "list", ".q": "set", "queue": "deque"}
    assert kinds_in("x = self.q[1]", kinds) == ((".q", "set"),)
    assert kinds_in("x = q[1] + queue2", kinds) == (("q", "list"),)
    assert kinds_in("", kinds) == ()


def test_a_place_has_the_kinds_of_its_file_where_they_are_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "replay.py"
    file.write_text("from collections import deque\nold = deque()\nx = old[0]\n")
    code = compile(file.read_text(), str(file), "exec")
    assert CodePlaces(with_kinds=True).place(code, 3).kinds == (("old", "deque"),)
    assert CodePlaces().place(code, 3).kinds == ()
