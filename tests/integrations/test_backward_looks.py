"""Which part of the first backwards leads to gradients that nobody uses: of teachers, frozen bodies, and in GANs."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from perf_diagnostics.integrations.model.trained import Trained
from perf_diagnostics.records import Json
from tests.integrations.test_first_turns import run_here

STEPS = 8


@pytest.fixture(autouse=True)
def _no_optimizers_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """They live on in this process, and are not about to step."""
    monkeypatch.setattr(Trained, "expects_more", False)


def facts_of(folder: Path, train) -> Mapping[str, Json]:
    loader = torch.utils.data.DataLoader(torch.randn(4 * STEPS, 4), batch_size=4)
    with run_here(folder) as session:
        _model = train(loader)  # what is gone is not described
    return session.watch.recording.result.facts


def chain(layers: int) -> torch.nn.Sequential:
    return torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(layers)))


def adversarial(*, detached: bool, in_place: bool = False):
    """A generator and its critic; the critic's loss reaches the generator unless it is cut off."""

    def train(loader) -> None:
        generator, critic = chain(6), chain(2)
        of_generator, of_critic = (torch.optim.Adam(one.parameters(), 1e-3) for one in (generator, critic))
        for x in loader:
            made = generator(torch.randn(4, 4))
            of_critic.zero_grad(set_to_none=not in_place)
            (critic(x) - critic(made.detach() if detached else made)).mean().backward()
            of_critic.step()
            of_generator.zero_grad(set_to_none=not in_place)
            critic(generator(torch.randn(4, 4))).mean().backward()
            of_generator.step()

    return train


@pytest.mark.parametrize("in_place", [False, True])
def test_a_generator_that_the_critics_loss_reaches(tmp_path: Path, in_place: bool) -> None:
    facts = facts_of(tmp_path, adversarial(detached=False, in_place=in_place))
    assert facts["gradients_dropped"] is True and facts["backwards_looked_into"] >= 2
    # Of the critic's backward all six layers of the generator, of the generator's own none of them.
    assert 0.2 < facts["backward_operators_unused"] < 0.6
    assert 0 < facts["backward_time_unused"] < 1


def test_and_one_that_is_cut_off(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, adversarial(detached=True))
    # What remains are the transposes of the critic's weights in the generator's backward.
    assert facts["backward_operators_unused"] < 0.15


def test_a_body_that_is_not_trained_and_not_frozen(tmp_path: Path) -> None:
    def train(loader) -> None:
        model = chain(6)
        optimizer = torch.optim.SGD(model[-1].parameters(), lr=0.01)
        for x in loader:
            model.zero_grad()
            model(x).mean().backward()
            optimizer.step()
        return model

    facts = facts_of(tmp_path, train)
    # Of the six layers' operators and the mean's, those of five: a product and a transpose each.
    assert facts["backward_operators_unused"] == pytest.approx(10 / 14, abs=0.06)
    assert facts["gradients_dropped"] is False and 0 < facts["backward_time_unused"] < 1
    # All five, whether a new gradient lies at the address of an old one or not.
    assert facts["gradients_nobody_uses"] == 5 * 20


@pytest.mark.parametrize("needs", ["input", "hook", "nothing"])
def test_gradients_that_somebody_takes_are_used(tmp_path: Path, needs: str) -> None:
    def train(loader) -> None:
        body, head = chain(3), chain(1)
        optimizer = torch.optim.SGD(head.parameters(), lr=0.01)
        if needs == "hook":
            for parameter in body.parameters():
                parameter.register_post_accumulate_grad_hook(lambda p: setattr(p, "grad", None))
        elif needs == "nothing":
            body.requires_grad_(False)
        for x in loader:
            optimizer.zero_grad()
            head(body(x.requires_grad_(needs == "input"))).mean().backward()
            optimizer.step()

    facts = facts_of(tmp_path, train)
    # By the input's gradient the body's products are needed, and the transposes of its weights are not.
    assert facts["backward_operators_unused"] == pytest.approx(3 / 9 if needs == "input" else 0.0, abs=0.05)


def test_a_second_pass_whose_first_gradients_were_only_read_tells_nothing(tmp_path: Path) -> None:
    def train(loader) -> None:
        model = chain(3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for x in loader:
            model(x).mean().backward()
            optimizer.zero_grad()  # SAM has moved its weights along them
            model(x).mean().backward()
            optimizer.step()
            optimizer.zero_grad()

    facts = facts_of(tmp_path, train)
    assert facts["backward_operators_unused"] == 0 and facts["backward_time_unused"] == 0


def test_backwards_that_torch_compiles_as_they_run_are_left_alone(tmp_path: Path) -> None:
    with torch._dynamo.config.patch(compiled_autograd=True):
        facts = facts_of(tmp_path, adversarial(detached=False))
    assert "backwards_looked_into" not in facts and "backward_operators_unused" not in facts


@pytest.mark.parametrize("kind", [tuple, iter])
def test_losses_that_are_given_together_are_left_as_they_are(tmp_path: Path, kind) -> None:
    given = []

    def train(loader) -> None:
        model = chain(2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for x in loader:
            optimizer.zero_grad()
            out = model(x)
            torch.autograd.backward(kind((out.mean(), out.square().mean())))
            given.append(model[0].weight.grad.abs().sum().item())
            optimizer.step()

    facts = facts_of(tmp_path, train)
    assert all(given) and ("backwards_looked_into" in facts) is (kind is tuple)


def test_nothing_stays_on_the_graph_and_gradients_are_as_without(tmp_path: Path) -> None:
    found = []

    def train(loader) -> None:
        torch.manual_seed(3)
        model = chain(3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for x in loader:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward(retain_graph=True)
            found.append([p.grad.clone() for p in model.parameters()])
            optimizer.step()

    torch.manual_seed(1)
    facts = facts_of(tmp_path, train)
    watched, found = found, []
    torch.manual_seed(1)
    train(torch.utils.data.DataLoader(torch.randn(4 * STEPS, 4), batch_size=4))
    assert facts["backwards_looked_into"] >= 1
    pairs = [pair for steps in zip(watched, found, strict=True) for pair in zip(*steps, strict=True)]
    assert len(pairs) == STEPS * 6 and all(torch.equal(one, other) for one, other in pairs)


def windows(chunks: int, *, kept: str = "keep", added: bool = True):
    """Chunks of a sequence, each with a loss of its own, and one update; the state goes on from chunk to chunk."""

    def train(loader) -> None:
        cell, head = torch.nn.RNNCell(4, 4), torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.01)
        for x in loader:
            state = torch.zeros(4, 4)
            optimizer.zero_grad()
            for _ in range(chunks):
                state = cell(x, state)
                head(state).mean().backward(retain_graph=kept != "free")
                if kept != "keep":
                    state = state.detach()
                if not added:
                    optimizer.zero_grad()
            optimizer.step()

    return train


def test_a_backward_that_goes_through_earlier_chunks_again(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, windows(4))
    # A chunk is a cell and a head: of the 4 backwards the second runs one cell again, the fourth three; heads are new.
    one = facts_of(tmp_path, windows(1))
    assert one["backward_operators_again"] == 0 and one["backward_time_again"] == 0
    assert 0.35 < facts["backward_operators_again"] < 0.6 and 0 < facts["backward_time_again"] < 1


@pytest.mark.parametrize("kept", ["free", "for nothing"])
def test_chunks_that_are_cut_off_are_run_once(tmp_path: Path, kept: str) -> None:
    facts = facts_of(tmp_path, windows(4, kept=kept))
    assert facts["backward_operators_again"] == 0 and facts["backward_time_again"] == 0


def test_operators_are_run_again_only_where_their_gradients_add_up(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, windows(4, added=False))
    assert facts["backward_operators_again"] == 0


def test_what_is_remembered_keeps_no_graph(tmp_path: Path) -> None:
    alive = []

    class Kept(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.held = Held()
            alive.append(weakref.ref(ctx.held))
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    class Held:
        pass

    def train(loader) -> None:
        model = chain(1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for x in loader:
            optimizer.zero_grad()
            Kept.apply(model(x)).mean().backward(retain_graph=True)
            assert len([one for one in alive if one() is not None]) == 0
            optimizer.step()

    assert "backward_operators_again" in facts_of(tmp_path, train) and len(alive) == STEPS


@pytest.mark.parametrize("frozen", [False, True])
def test_a_weight_that_nobody_trains_costs_half_of_its_layers_backward(tmp_path: Path, frozen: bool) -> None:
    """Gradients go through a body to what is trained before it; its own are made beside them, in the same operators."""

    def train(loader) -> None:
        first = torch.nn.Linear(4, 256)
        body = torch.nn.Sequential(*(torch.nn.Linear(256, 256, bias=False) for _ in range(6))).requires_grad_(
            not frozen
        )
        model = torch.nn.Sequential(first, body)
        optimizer = torch.optim.SGD(first.parameters(), lr=0.01)
        for x in loader:
            model.zero_grad()
            model(x.repeat(64, 1)).mean().backward()
            optimizer.step()
        return model

    facts = facts_of(tmp_path, train)
    unused = facts["backward_time_unused"]
    assert unused == 0 if frozen else 0.3 < unused < 0.7
