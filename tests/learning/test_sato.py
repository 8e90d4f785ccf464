r"""Sato's result of sec. 3.5: stochastic EM is natural gradient ascent in the complete model.

Let Z be the latent variables (the choice at each sum reached), u(x, z) the sufficient statistics of
the complete model P(X, Z), which is an exponential family: for each edge of a sum whether it is
taken, for each leaf entry whether it is reached, times T(x). Three statements hold exactly, and are
tested here on circuits small enough to list all (x, z):

1. In expectation parameters η = E[u] the gradient of the mean log-likelihood of a batch, multiplied
   by the inverse Fisher matrix of the complete model, is E_batch[E[u | x]] − η (Sato). So averaging
   *joint* statistics, η ← (1 − λ) η + λ E_batch[E[u | x]], is a natural gradient step of size λ.
2. Eqs. (8) and (9) average *conditional* parameters ψ: the weights of each sum and φ of each leaf.
   In ψ the complete model's Fisher matrix is block diagonal, and each block is the probability that
   the model reaches the node, times the Fisher matrix of that node alone. The step of the two
   equations is λ F̂⁻¹∇, where F̂ has the share of the *batch* that reaches the node (Σ_N w n, or p_L)
   in place of the model's probability: each node's step is that of the natural gradient times the
   ratio of the two. For the root the ratio is 1.
3. Where batch and model reach all nodes equally often, F̂ = F, and the step is λ F⁻¹∇ itself.
"""

import pytest
import torch
from torch import Tensor
from torch.func import jacrev

from einet import Bernoulli, Einet, StochasticEM, random_trees
from tests.learning.complete import Complete

STEP = 0.3

STRUCTURES = {
    "mixture": random_trees(2, depth=0, replicas=1),
    "one partition": random_trees(2, depth=1, replicas=1),
    "two partitions": random_trees(3, depth=1, replicas=2),
    "two levels": random_trees(4, depth=2, replicas=1),
}


class Small:
    """A model of binary variables as a function of its conditional parameters ψ.

    ψ holds the weights of every sum but its last (the rest follows), then φ of every leaf entry.
    """

    def __init__(self, structure: str) -> None:
        graph = STRUCTURES[structure]
        self.model = Einet(graph, Bernoulli(), 2, dtype=torch.float64, seed=4)
        self.complete = Complete(self.model)
        levels = [torch.tensor([0.0, 1.0], dtype=torch.float64)] * graph.num_variables
        self.states = torch.cartesian_prod(*levels)
        self.sums = self.complete.sums()
        last = [int((self.sums == number).nonzero()[-1]) for number in self.sums.unique()]
        self.free = torch.ones_like(self.sums, dtype=torch.bool)
        self.free[last] = False
        self.num_sums, self.num_free = len(last), int(self.free.sum())
        # The weights as an affine function of the free ones: the last is what is left of 1.
        same = self.sums.unsqueeze(1) == self.sums[self.free]
        self.matrix = torch.eye(len(self.sums), dtype=torch.float64)[:, self.free]
        self.matrix -= (same & ~self.free.unsqueeze(1)).double()
        self.constant = (~self.free).double()

    def psi(self) -> Tensor:
        phis = [block.stored.detach().reshape(-1) for block in self.model.leaf.leaf_blocks]
        return torch.cat([self.complete.weights()[self.free], *phis])

    def log_joint(self, psi: Tensor) -> Tensor:
        """log p(x, z) of all z and x, ``[trees, states]``."""
        weights = self.matrix @ psi[: self.num_free] + self.constant
        naturals, start = [], self.num_free
        for block in self.model.leaf.leaf_blocks:
            phi = psi[start : start + block.stored.numel()].view(block.stored.shape)
            start += block.stored.numel()
            theta = block.family.theta(phi)
            naturals.append((theta, block.family.A(theta)))
        return self.complete.log_joint(self.states, weights=weights, naturals=naturals)

    def statistics(self) -> Tensor:
        """u(x, z) in the order of ψ, ``[trees, states, parameters]``."""
        edges = self.complete.edges[:, self.free]
        parts = [edges.unsqueeze(1).expand(-1, len(self.states), -1)]
        for leaves, variables in self._leaf_entries():
            parts.append(leaves.unsqueeze(1) * self.states[:, variables])
        return torch.cat(parts, -1)

    def reached(self) -> Tensor:
        """For each tree and parameter whether it reaches the node the parameter belongs to."""
        of_sums = torch.zeros(len(self.complete.edges), self.num_sums, dtype=torch.float64)
        of_sums.index_add_(1, self.sums, self.complete.edges)
        parts = [of_sums[:, self.sums[self.free]]]
        return torch.cat([*parts, *(leaves for leaves, _ in self._leaf_entries())], -1)

    def _leaf_entries(self) -> list[tuple[Tensor, Tensor]]:
        """For each block: which trees end in each (entry, pair), and the pair's variable."""
        result = []
        for block in self.model.leaf.leaf_blocks:
            n, s = block.columns.shape
            K = self.model.num_leaves
            entries = torch.arange(K).view(K, 1, 1) + K * block.leaves.view(1, n, 1)
            entries = entries.expand(K, n, s).reshape(-1)
            variables = block.group.variables[block.columns].expand(K, n, s).reshape(-1)
            result.append((self.complete.leaves[:, entries], variables))
        return result

    # -- information ---------------------------------------------------------------------------

    def fisher(self) -> Tensor:
        """E[∇ log p(x, z) ∇ log p(x, z)ᵀ] in ψ, by enumeration."""
        psi = self.psi()
        scores = jacrev(self.log_joint)(psi).flatten(0, 1)
        p = self.log_joint(psi).exp().flatten()
        return scores.T @ (p.unsqueeze(1) * scores)

    def gradient(self, batch: Tensor) -> Tensor:
        """∇ of the mean log-likelihood in ψ; ``batch`` is the share of each state."""
        psi = self.psi().requires_grad_()
        mean = (self.log_joint(psi).logsumexp(0) * batch).sum()
        return torch.autograd.grad(mean, psi)[0]

    def expectation(self, psi: Tensor) -> Tensor:
        """η(ψ) = E[u]."""
        return (self.log_joint(psi).exp().unsqueeze(-1) * self.statistics()).sum((0, 1))

    def posterior(self) -> Tensor:
        """p(z | x), ``[trees, states]``."""
        return self.log_joint(self.psi()).softmax(0)

    def step(self, batch: Tensor) -> Tensor:
        """What a step of stochastic EM adds to ψ."""
        before = self.psi()
        StochasticEM(STEP).step(self.model, self.model.as_batch(self.states, weights=batch))
        return self.psi() - before


@pytest.fixture(params=STRUCTURES)
def small(request: pytest.FixtureRequest) -> Small:
    return Small(request.param)


@pytest.fixture
def batch(small: Small) -> Tensor:
    """A mini-batch of 10 rows, as shares of the states."""
    rows = torch.randint(len(small.states), (10,), generator=torch.Generator().manual_seed(1))
    return torch.bincount(rows, minlength=len(small.states)).double() / 10


def test_the_enumeration_is_the_model(small: Small) -> None:
    log_prob = small.log_joint(small.psi()).logsumexp(0)
    torch.testing.assert_close(log_prob, small.model.log_prob(small.states))
    torch.testing.assert_close(log_prob.exp().sum(), torch.ones(()).double())


def test_fisher_blocks_are_weighted_by_how_often_a_node_is_reached(small: Small) -> None:
    fisher = small.fisher()
    leaves = torch.arange(len(fisher)) >= small.num_free
    phi = small.psi()[leaves]
    p = small.log_joint(small.psi()).exp().sum(1)
    reached = (p @ small.reached())[leaves]
    torch.testing.assert_close(fisher[leaves][:, leaves], torch.diag(reached / (phi * (1 - phi))))
    assert fisher[leaves][:, ~leaves].abs().max() < 1e-12
    owner = small.sums[small.free]
    other = owner.unsqueeze(0) != owner.unsqueeze(1)
    assert (fisher[~leaves][:, ~leaves].abs() * other).max() < 1e-12


def test_averaging_joint_statistics_is_a_natural_gradient_step(small: Small, batch: Tensor) -> None:
    """Statement 1, with the averaging done by the library's own E- and M-step."""
    psi = small.psi()
    eta = small.expectation(psi)
    to_eta = jacrev(small.expectation)(psi)
    back = torch.linalg.inv(to_eta)
    fisher = back.T @ small.fisher() @ back
    gradient = back.T @ small.gradient(batch)
    natural = torch.linalg.solve(fisher, gradient)

    # In η the inverse Fisher matrix is the covariance of u: the mark of an exponential family.
    u = small.statistics().flatten(0, 1)
    p = small.log_joint(psi).exp().reshape(-1, 1)
    torch.testing.assert_close(torch.linalg.inv(fisher), (u * p).T @ u - torch.outer(eta, eta))

    expected = (small.posterior() * batch).unsqueeze(-1) * small.statistics()
    torch.testing.assert_close(natural, expected.sum((0, 1)) - eta)

    model = small.model
    own = model.e_step(small.states, weights=model.log_prob(small.states).exp() * (1 - STEP))
    model.m_step(model.e_step(small.states, weights=batch * STEP, into=own))
    torch.testing.assert_close(small.expectation(small.psi()), eta + STEP * natural)


def test_the_step_is_preconditioned_by_the_fisher_matrix_at_the_visits_of_the_batch(
    small: Small, batch: Tensor
) -> None:
    """Statement 2."""
    natural = torch.linalg.solve(small.fisher(), small.gradient(batch))
    by_model = small.log_joint(small.psi()).exp().sum(1) @ small.reached()
    by_batch = (small.posterior() @ batch) @ small.reached()
    step = small.step(batch)
    torch.testing.assert_close(step, STEP * natural * by_model / by_batch)
    # The layers come bottom up, so the last weights are the root's.
    at_root = small.sums[small.free] == small.sums[-1]
    torch.testing.assert_close(
        step[: small.num_free][at_root], STEP * natural[: small.num_free][at_root]
    )
    assert step.norm() > 1e-3
    assert (by_model / by_batch - 1).abs().max() > 1e-3


def test_the_step_is_the_natural_gradient_where_visits_agree(small: Small) -> None:
    """Statement 3, on a batch made so that p(node reached) is the model's at every node."""
    visits = small.reached().T @ small.posterior()
    constraints = torch.cat([visits, torch.ones(1, len(small.states), dtype=torch.float64)])
    own = small.log_joint(small.psi()).exp().sum(0)
    # A direction along which no node's visits change, in units of the model's own shares.
    _, values, rows = torch.linalg.svd(constraints * own)
    rank = int((values > 1e-10 * values[0]).sum())
    assert rank < len(own)
    away = rows[rank:].sum(0)
    batch = own * (1 + 0.9 * away / away.abs().max())

    natural = torch.linalg.solve(small.fisher(), small.gradient(batch))
    step = small.step(batch)
    torch.testing.assert_close(step, STEP * natural)
    assert step.norm() > 1e-3
