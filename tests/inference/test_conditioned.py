"""What questions are made of: weighted leaves, expectations over them, and some of the rows."""

import pytest
import torch
from torch import Tensor

import einet
from einet.inference.conditioned import Conditioned, WeightedLeaves
from einet.inference.states import state_sums
from tests.budgets import limit
from tests.oracle import NAN, close, random_model, random_rows

GRAPH = einet.random_trees(3, depth=1, replicas=2)
STATES = torch.cartesian_prod(*[torch.arange(3.0, dtype=torch.float64)] * 3)


def make(kind: str) -> einet.Model:
    """One Einet, or a mixture in a mixture whose first component cannot explain a 2."""
    wide = [random_model(GRAPH, einet.Binomial(2), 3, seed=seed) for seed in (0, 1)]
    if kind == "Einet":
        return wide[0]
    narrow = random_model(GRAPH, einet.Binomial(1), 3, seed=2)
    inner = einet.Mixture([narrow, wide[1]], [0.5, 0.5])
    return einet.Mixture([inner, wide[0]], [0.6, 0.4])


EVIDENCE = torch.tensor(
    [[NAN, NAN, NAN], [2, NAN, NAN], [NAN, 0, 1], [0, NAN, 2], [1, 1, 1]]
).double()
both_kinds = pytest.mark.parametrize("kind", ["Einet", "Mixture"])


def exact(model: einet.Model, row: Tensor) -> Tensor:
    """p of every state given the known cells of a row."""
    with torch.no_grad():
        p = model.log_prob(STATES).exp() * ((row == STATES) | row.isnan()).all(1)
    return p / p.sum()


@both_kinds
def test_shares_and_flows_add_up_to_one(kind: str):
    """Every variable of every row has one leaf of one Einet."""
    posterior = make(kind).given(EVIDENCE)
    shares = torch.zeros(5, dtype=torch.float64)
    for leaves in posterior.weighted_leaves():
        assert (leaves.share > 0).all()
        shares[leaves.rows] += leaves.share
        for variable in range(3):
            total = torch.zeros(leaves.flow.shape[-1], dtype=torch.float64)
            for block in leaves.leaf.leaf_blocks:
                has = (block.group.variables[block.columns] == variable).any(1)
                total += leaves.flow[block.leaves[has]].sum((0, 1))
            close(total, torch.ones_like(total))
    close(shares, [1.0] * 5)


def chance_of_even(posterior: Conditioned, variable: int) -> Tensor:
    """A question of its own: P(x_d is even | e), in five lines and for every model."""
    even = torch.tensor([0.0, 2.0], dtype=torch.float64)

    def of(leaves: WeightedLeaves) -> Tensor:
        return state_sums(leaves, torch.tensor([variable]), even)[0].sum(0).unsqueeze(-1)

    return posterior.expectation(of, 1)[:, 0]


@both_kinds
def test_a_question_of_its_own(kind: str):
    model = make(kind)
    for variable in range(3):
        even = STATES[:, variable] % 2 == 0
        expected = [exact(model, row)[even].sum() for row in EVIDENCE]
        missing = EVIDENCE[:, variable].isnan()
        found = chance_of_even(model.given(EVIDENCE), variable)
        close(found[missing], torch.stack(expected)[missing])


@both_kinds
@pytest.mark.parametrize("asked_before", [False, True])
@pytest.mark.parametrize("rows", [slice(1, 4), torch.tensor([0, 2, 4]), torch.tensor([1])], ids=str)
def test_some_of_the_rows(kind: str, asked_before: bool, rows: slice | Tensor):
    model = make(kind)
    posterior, alone = model.given(EVIDENCE), model.given(EVIDENCE[rows])
    if asked_before:
        posterior.mean()
    some = posterior.at(rows)
    assert len(some) == len(alone)
    for answer in ("mean", "variance", "impute", "mode"):
        close(getattr(some, answer)(), getattr(alone, answer)())
    close(some.log_evidence, alone.log_evidence)
    close(some.entropy(1), alone.entropy(1))
    assert some.sample(4, seed=0).equal(alone.sample(4, seed=0))
    again = some.at(slice(0, 1))
    close(again.mean(), alone.mean()[:1])


def test_rows_of_a_large_batch_in_pieces(monkeypatch: pytest.MonkeyPatch):
    model = make("Mixture")
    x = random_rows(random_model(GRAPH, einet.Binomial(2), 3), 150)
    whole = model.given(x)
    expected = whole.mean(), whole.variance(), whole.impute(), whole.log_marginals(x.nan_to_num(1))
    limit(monkeypatch, "values")
    pieces = model.given(x)
    found = pieces.mean(), pieces.variance(), pieces.impute(), pieces.log_marginals(x.nan_to_num(1))
    for some, others in zip(found, expected, strict=True):
        close(some, others)


def test_components_that_answer_from_recordings(monkeypatch: pytest.MonkeyPatch):
    """As on a GPU, where densities of components come without values of their nodes."""
    model = make("Mixture")
    expected = model.given(EVIDENCE)
    answers = expected.mean(), expected.variance(), expected.impute(), expected.mode()
    conditional = expected.log_prob(torch.ones(5, 3))
    monkeypatch.setattr(einet.Mixture, "recorded", True)
    posterior = model.given(EVIDENCE)
    found = posterior.mean(), posterior.variance(), posterior.impute(), posterior.mode()
    for some, others in zip(found, answers, strict=True):
        close(some, others)
    close(posterior.log_prob(torch.ones(5, 3)), conditional)
    close(posterior.at(slice(1, 3)).mean(), answers[0][1:3])
    assert posterior.sample(4, seed=0).equal(expected.sample(4, seed=0))
