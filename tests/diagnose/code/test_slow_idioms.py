"""Lines that are known to be slow by how they are written, and lines like them that are not."""

from __future__ import annotations

import dataclasses

import pytest

from perf_diagnostics.diagnose.code.code_words import why_slow
from perf_diagnostics.diagnose.code.slow_idioms import _KNOWN, LEAST_SHARE, idiom_of, slow_idiom
from perf_diagnostics.diagnose.code_share import CodeShare, LineShare
from perf_diagnostics.diagnose.statistics.intervals import Interval
from perf_diagnostics.records import CodePlace


def line(text: str, *, number: int = 7, **kinds: str) -> CodePlace:
    """A line; an attribute's kind is given by its name behind ``of_``."""
    named = tuple((name.replace("of_", ".", 1), kind) for name, kind in kinds.items())
    return CodePlace(file="train.py", line=number, function="f", text=text, kinds=named)


def taking(share: float, place: CodePlace, called: str = "", **more: object) -> CodeShare:
    part = Interval(share, None, None, 100)
    return CodeShare(place=place, callers=(), called=called, phase="other", share=part, looks=50, **more)


SLOW = [
    ("deque-index", "x = self.old[i]", {"of_old": "deque"}, ""),
    ("deque-index", "batch = [agent.memory.old[i] for i in index]", {"of_old": "deque"}, ""),
    ("deque-index", "self.old[i] for i in index]", {"of_old": "deque"}, ""),
    ("rows-of-columns", "xb, yb = X[idx], y[idx]", {"X": "columns"}, ""),
    ("rows-of-columns", "x = self.table[order[i : i + 64]]", {"of_table": "columns"}, ""),
    ("rows-of-columns", "x = torch.index_select(X, 0, idx)", {"X": "columns"}, "torch.index_select"),
    ("rows-of-columns", "x = X.index_select(0, idx)", {"X": "columns"}, ""),
    ("deque-sample", "batch = random.sample(memory, 32)", {"memory": "deque"}, ""),
    ("deque-sample", "batch = random.sample(memory, 32)", {"memory": "deque"}, "random.Random.sample"),
    ("list-pop-first", "while queue.pop(0):", {"queue": "list"}, ""),
    ("list-insert-first", "self.q.insert(0, x)", {"of_q": "list"}, ""),
    (
        "archive-read-each-time",
        'wave = shard["waves"][k].astype(np.float32) / 1024',
        {},
        "numpy.lib._npyio_impl.NpzFile.__getitem__",
    ),
    ("list-cut-first", "buffer = buffer[BLOCK:]", {"buffer": "list"}, ""),
    ("list-cut-first", "block, self.rest = self.rest[:n], self.rest[n:]", {"of_rest": "list"}, ""),
    ("search-in-list", "if user not in seen:", {"seen": "list"}, ""),
    ("search-in-list", "elif user in seen:", {"seen": "list"}, ""),
    ("search-in-list", "return self.names.index(name)", {"of_names": "list"}, ""),
    ("grown-by-copies", "self.all = np.append(self.all, x)", {"of_all": "grown"}, "numpy.append"),
    ("grown-by-copies", "bank = torch.cat([bank, x.detach()], dim=0)", {"bank": "grown"}, ""),
    ("grown-by-copies", "mels = torch.cat([mels, out], 1)", {"mels": "collected"}, ""),
    ("grown-by-copies", "df = pd.concat((df, row))", {"df": "grown"}, "pandas.core.reshape.concat.concat"),
    ("grown-by-copies", "losses = losses + [loss]", {"losses": "grown"}, ""),
    (
        "all-gathered-for-one",
        "old, new = self.shadow.state_dict()[name], model.state_dict()[name]",
        {},
        "torch.nn.modules.module.Module.state_dict",
    ),
    (
        "all-gathered-for-one",
        "p = dict(model.named_parameters())[name]",
        {},
        "torch.nn.modules.module.Module.named_parameters",
    ),
    ("window-by-copies", "self.queue = torch.cat([self.queue, k])[-n:].contiguous()", {"of_queue": "window"}, ""),
    ("window-by-copies", "self.queue = torch.cat((self.queue[len(k):], k), dim=0)", {"of_queue": "window"}, ""),
    ("window-by-copies", "last = np.roll(last, -1, axis=0)", {"last": "window"}, "numpy.roll"),
    ("unique-rows", "u, inverse = torch.unique(cells, dim=0, return_inverse=True)", {}, "torch._jit_internal.fn"),
    ("unique-rows", "u = np.unique(cells, axis=0)", {}, "numpy.lib._arraysetops_impl.unique"),
    ("unique-rows", "u = cells.unique(dim=0)", {}, ""),
    ("choice-without-replacement", "i = np.random.choice(n, 64, replace=False)", {}, ""),
    ("choice-by-weights", "i = rng.choice(n, 64, p=self.weights)", {}, ""),
    ("choice-by-weights", "random.choices(items, weights=w, k=4)", {}, "random.Random.choices"),
    ("cut-permutation", "i = torch.randperm(n)[:64]", {}, ""),
    ("python-shuffle", "random.shuffle(order)", {}, "random.Random.shuffle"),
    ("rows-of-a-table", "row = self.df.iloc[i]", {}, "pandas.core.indexing._LocationIndexer.__getitem__"),
    ("rows-of-a-table", "for _, row in df.iterrows():", {}, "pandas.core.frame.DataFrame.iterrows"),
    ("rows-chosen-each-time", 'mine = df[df["user"] == user]', {}, "pandas.core.frame.DataFrame.__getitem__"),
    ("applied-row-by-row", "y = df.apply(score, axis=1)", {}, "pandas.core.frame.DataFrame.apply"),
    ("vectorised-in-name", "y = np.apply_along_axis(f, 1, x)", {}, "numpy.lib._shape_base_impl.apply_along_axis"),
    ("deep-copy", "sample = copy.deepcopy(self.data[i])", {}, "copy.deepcopy"),
    ("items-one-by-one", "values = [x.item() for x in losses]", {}, ""),
    ("number-by-number", "delta = r[t, e] + g * nxt * live - v[t, e]", {"t": "counter", "e": "counter"}, ""),
    ("number-by-number", "live = 1.0 - done[t, e]", {"t": "counter", "e": "counter"}, ""),
    ("number-by-number", "if token in (PAD, CLS, SEP):", {"token": "number"}, ""),
    ("convolved-directly", "wet = np.convolve(wav, rir)[: len(wav)]", {}, "numpy.convolve"),
    ("number-by-number", "delta = r[t] + g * v[t + 1] - v[t]", {"t": "counter"}, ""),
    ("tensor-of-a-list", "x = torch.tensor([f(v) for v in row])", {}, ""),
    ("tensor-of-a-list", "x = torch.tensor([[f(v) for v in row], other])", {}, ""),
    ("tensor-of-a-list", "return torch.tensor(rows)", {"rows": "list"}, ""),
    ("tensor-of-a-list", "states = torch.tensor(states, dtype=torch.float32)", {"states": "tuple"}, ""),
    ("tensor-of-a-list", "reward = torch.tensor(batch.reward)", {"batch": "zipped"}, ""),
    ("tensor-of-a-list", "reward = torch.as_tensor(batch[2])", {"batch": "zipped"}, ""),
    ("tensor-of-a-list", "s, a, r = map(torch.FloatTensor, zip(*batch))", {}, ""),
    ("rows-sampled-each-time", "rows = self.frame.sample(n=batch_size)", {}, "pandas.core.generic.NDFrame.sample"),
    ("rows-sampled-each-time", "x = df.sample(32).to_numpy()", {}, "pandas.core.generic.NDFrame.sample"),
    ("array-of-a-list", "p = np.array(self.priorities)", {"of_priorities": "list"}, ""),
    ("array-of-a-list", "idx = choose(np.asarray(seen, dtype=np.float32), n)", {"seen": "deque"}, ""),
    ("text-parsed-each-time", "one = json.loads(self.lines[i])", {}, "json.loads"),
    ("decomposition-each-time", "loss = loss + sum(torch.linalg.svdvals(w).sum() for w in weights)", {}, ""),
    ("decomposition-each-time", "penalty = torch.norm(w, p='nuc')", {}, ""),
    ("decomposition-each-time", "penalty = torch.linalg.matrix_norm(w, 'nuc')", {}, ""),
    ("inverse-each-time", "x = torch.linalg.inv(cov) @ d.T", {}, ""),
    ("inverse-each-time", "p = torch.inverse(cov)", {}, ""),
    ("text-of-numbers", "x = np.loadtxt(path)", {}, "numpy.lib._npyio_impl.loadtxt"),
    ("time-parsed-each-time", "t = datetime.strptime(text, form)", {}, "_strptime._strptime_datetime"),
    ("image-decoded-each-time", 'x = Image.open(path).convert("RGB")', {}, "PIL.Image.Image.convert"),
    ("search-by-comparing", "mine = [x for x in self.rows if x.user == user]", {}, ""),
    ("sorted-by-a-function", "best = sorted(index, key=lambda i: -score[i])[:8]", {}, ""),
]


@pytest.mark.parametrize(("name", "text", "kinds", "called"), SLOW)
def test_an_idiom_is_told_with_why_and_what_to_write_instead(
    name: str, text: str, kinds: dict[str, str], called: str
) -> None:
    idiom = idiom_of(line(text, **kinds), called)
    assert idiom is not None and idiom.name == name
    assert "{" not in idiom.says.replace("{}", "{") and len(idiom.why) > 30 and len(idiom.instead) > 20


def test_every_idiom_that_is_known_has_a_line_here() -> None:
    assert {known.name for known in _KNOWN} == {name for name, *_ in SLOW}


@pytest.mark.parametrize(
    ("text", "kinds", "called"),
    [
        ("x = self.old[i]", {}, ""),  # of whatever
        ("p = np.array(self.priorities)", {}, ""),  # of whatever
        ("p = np.array([f(x) for x in rows])", {"rows": "list"}, ""),  # what is called may take longer
        ("p = np.array([loss, accuracy])", {}, ""),
        ("p = np.array(rows)", {"rows": "list"}, "shapely.geometry.Point.__array__"),  # what it is made of takes long
        ("x = self.old[i]", {"of_old": "list"}, ""),
        ("x = self.old[0] + self.old[-1]", {"of_old": "deque"}, ""),  # its ends are there at once
        ("x = self.old[i].encode()", {"of_old": "deque"}, "transformers.encode"),  # the time goes there
        ("batch = random.sample(memory, 32)", {"memory": "list"}, "random.Random.sample"),
        ("xb = X[idx]", {}, ""),  # as it was made
        ("xb = X[i : i + 64]", {"X": "columns"}, ""),  # copies nothing
        ("column = X[:, 3]", {"X": "columns"}, ""),
        ("X[idx] = 0", {"X": "columns"}, ""),
        ("x = model(X)[idx]", {"X": "columns"}, ""),
        ("x = table.pop(0)", {"table": "dict"}, ""),
        ("x = stack.pop()", {"stack": "list"}, ""),
        ("if user not in seen:", {"seen": "set"}, ""),
        ("if user not in seen:", {}, ""),
        ("for x in seen:", {"seen": "list"}, ""),  # goes through it, and searches nothing
        ("x = torch.cat([x, y])[:4]", {}, ""),
        ("both = torch.cat([x, y])", {}, ""),
        ("x = torch.cat([x, skip], dim=1)", {}, ""),  # of an x that is new each time
        ("u = torch.unique(key)", {}, ""),
        ("u = np.unique(key, axis=None)", {}, "numpy.lib._arraysetops_impl.unique"),
        ("i = np.random.choice(n, 64)", {}, ""),
        ("i = rng.choice(n, 64, replace=False)", {}, ""),
        ("i = torch.randperm(n)", {}, ""),
        ("i = torch.randperm(n)[k:]", {}, ""),
        ("x = df.iloc[10:20]", {}, "pandas.core.indexing._LocationIndexer.__getitem__"),
        ("x = self.table.loc[i]", {}, ""),  # not pandas, or its time is not there
        ("self.apply(self._init_weights)", {}, "torch.nn.modules.module.Module.apply"),
        ("out = Function.apply(x)", {}, ""),
        ("rows = df.sample(frac=1.0)", {}, "pandas.core.generic.NDFrame.sample"),  # all of them
        ("rows = df.sample(32, replace=True)", {}, "pandas.core.generic.NDFrame.sample"),
        ("batch = buffer.sample(64)", {}, ""),
        ("x = torch.tensor(self.rows[i])", {}, ""),
        ("reward = torch.cat(batch.reward)", {"batch": "zipped"}, ""),  # tensors, joined in one call
        ("s, a, r = map(np.stack, zip(*batch))", {}, ""),
        ("losses = pool.map(torch.tensor, zip(*batch))", {}, ""),
        ("lo, hi = torch.quantile(x.flatten(), torch.tensor([0.1, 0.9]))", {}, ""),
        ("x = torch.tensor([[1.0, a], [b, 2.0]])", {}, ""),
        ("penalty = torch.norm(w, p=2) + torch.linalg.norm(w, ord=1)", {}, ""),
        ("x = self.svd(w) + model.inv(x) + np.inverse(x)", {}, ""),
        ("value = loss.item()", {}, ""),
        ("x = x[x > 0]", {}, ""),
        ("y = [f(x) for x in rows]", {}, ""),
        ("held = model.state_dict()", {}, "torch.nn.modules.module.Module.state_dict"),
        ("first = list(rows)[0]", {}, ""),
        ("loss.backward()", {}, ""),
        ("x = x[4:]", {}, ""),  # a tensor, or an array, for all that its file tells
        ("last = last[-8:]", {"last": "list"}, ""),
        ("q = q[::2]", {"q": "list"}, ""),
        ("q = q[:-1]", {"q": "list"}, ""),
        ("rest = q[4:]", {"q": "list", "rest": "list"}, ""),
        ("", {}, ""),
        ('print(f"{a!r:>', {}, ""),
        ("]})(", {}, ""),
    ],
)
def test_what_only_looks_like_one_is_not_told(text: str, kinds: dict[str, str], called: str) -> None:
    assert idiom_of(line(text, **kinds), called) is None


@pytest.mark.parametrize(
    ("text", "member"),
    [
        ('wave = shard["waves"][k].astype(np.float32)', "shard['waves']"),
        ('return self.shards[i]["waves"][k, 3:]', "self.shards[i]['waves']"),
        ("x = archive[name]", "archive[name]"),
        ('x = archive[f"{name}.x"][:9]', "archive[f'{name}.x']"),
    ],
)
def test_of_an_archive_the_array_is_named_and_not_what_is_used_of_it(text: str, member: str) -> None:
    idiom = idiom_of(line(text), "numpy.lib._npyio_impl.NpzFile.__getitem__")
    assert idiom is not None and idiom.why.startswith(f"{member} reads a whole array")


def test_only_a_line_of_a_sizeable_share_is_told() -> None:
    slow = line("i = torch.randperm(n)[:64]")
    assert slow_idiom(taking(LEAST_SHARE, slow)) is not None
    assert slow_idiom(taking(0.99 * LEAST_SHARE, slow)) is None


@pytest.mark.parametrize("text", ["pool = torch.cat([pool, buffer.sample(64)])", "pool = np.append(pool, x.argmax())"])
def test_a_pool_that_grows_by_what_is_drawn_is_told(text) -> None:
    assert slow_idiom(taking(0.3, line(text, pool="grown"))) is not None


@pytest.mark.parametrize(
    ("drawn", "told"),
    [("torch.multinomial(p, 1)", False), ("scores.argmax(-1)", False), ("policy.sample()", False), ("new", True)],
)
def test_an_answer_that_grows_by_what_is_chosen_is_no_history_that_grows(drawn, told) -> None:
    grown = line(f"tokens = torch.cat([tokens, {drawn}], 1)", tokens="grown")
    assert (slow_idiom(taking(0.3, grown)) is not None) is told


def test_layers_that_join_what_they_are_given_are_no_history_that_grows() -> None:
    grown = line("x = torch.cat([x, new], dim=1)", x="grown")
    assert slow_idiom(taking(0.3, grown)) is not None
    assert slow_idiom(dataclasses.replace(taking(0.3, grown), phase="forward")) is None
    assert idiom_of(grown, "torch.nn.modules.conv.Conv2d.forward") is None


def test_what_a_models_loop_only_collects_is_told_in_its_forward() -> None:
    collected = line("mels = torch.cat([mels, out], 1)", mels="collected")
    idiom = slow_idiom(dataclasses.replace(taking(0.3, collected), phase="forward"))
    assert idiom is not None and "join it once behind the loop" in idiom.says
    drawn = line("tokens = torch.cat([tokens, p.argmax(-1)], 1)", tokens="collected")
    assert slow_idiom(dataclasses.replace(taking(0.3, drawn), phase="forward")) is None


def test_of_several_lines_the_one_that_is_slow_is_told() -> None:
    plain, slow = line("x = x + 1", number=7), line("self.q.pop(0)", number=8, of_q="list")
    few = LineShare(slow, Interval(0.01, None, None, 9), 4)
    many = LineShare(slow, Interval(0.30, None, None, 9), 40)
    first = LineShare(plain, Interval(0.40, None, None, 9), 50)
    assert slow_idiom(taking(0.41, plain, within=(first, few))) is None
    idiom = slow_idiom(taking(0.70, plain, within=(first, many)))
    assert idiom is not None and idiom.place == slow
    assert why_slow(taking(0.70, plain, within=(first, many))).startswith(
        "Known to be slow in line 8: taking the first"
    )


def test_a_line_below_the_call_is_told_with_its_place() -> None:
    call, slow = line("batch = replay.sample(64)", number=40), line("self.old[i]", number=13, of_old="deque")
    assert why_slow(taking(0.5, call)) == ""
    told = why_slow(taking(0.5, call, below=(LineShare(slow, Interval(0.4, None, None, 9), 40),)))
    assert told.startswith("Known to be slow at train.py:13 in f (`self.old[i]`): self.old is a deque, in which")
    assert why_slow(taking(0.5, slow)).startswith("Known to be slow: self.old is a deque")
