"""Many threads ask one model at the same time: no answer changes, and nobody waits for ever."""

import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import einet
from einet.data.batch import as_batch
from einet.inference import Posterior
from tests.oracle import close, random_model, random_rows

THREADS, ROUNDS = 8, 2
# Far more than the work takes; a thread that is not done by then hangs.
PATIENCE = 300.0

Ask = Callable[[einet.Model, Tensor], Tensor]

QUERIES: dict[str, Ask] = {
    "log_prob": lambda model, x: model.log_prob(x),
    "log_evidence": lambda model, x: model.given(x).log_evidence,
    "conditional": lambda model, x: model.given(x).log_prob(x.nan_to_num(1)),
    "sample": lambda model, x: model.given(x).sample(3, seed=1),
    "leaf means": lambda model, x: model.given(x).sample(3, leaves="mean", seed=1),
    "unconditional": lambda model, x: model.sample(5, seed=1),
    "mean": lambda model, x: model.given(x).mean(),
    "variance": lambda model, x: model.given(x).variance(),
    "mode": lambda model, x: model.given(x).mode(),
    "log_marginals": lambda model, x: model.given(x).log_marginals(x.nan_to_num(1)),
    "probabilities": lambda model, x: model.given(x).probabilities(0),
    "entropy": lambda model, x: model.given(x).entropy(0),
    "impute": lambda model, x: model.given(x).impute(),
    "imputed draws": lambda model, x: model.given(x).impute("sample", seed=2),
    "log_normalizer": lambda model, x: model.log_normalizer(),
}
#: What a posterior keeps is made by whoever comes first.
OF_ONE_POSTERIOR: dict[str, Callable[[Posterior], Tensor]] = {
    "log_evidence": lambda posterior: posterior.log_evidence,
    "sample": lambda posterior: posterior.sample(3, seed=1),
    "mean": lambda posterior: posterior.mean(),
    "variance": lambda posterior: posterior.variance(),
    "probabilities": lambda posterior: posterior.probabilities(0),
    "entropy": lambda posterior: posterior.entropy(0),
    "impute": lambda posterior: posterior.impute(),
}


def make(kind: str) -> tuple[einet.Model, Tensor]:
    """A model, and rows to ask about."""
    graph = einet.random_trees(3, depth=1, replicas=2)
    families = [einet.Binomial(3), einet.Categorical(3), einet.Gaussian()]
    models = [random_model(graph, families, 3, seed=seed) for seed in range(3)]
    x = random_rows(models[0], 12)
    if kind == "Einet":
        return models[0], x
    return einet.Mixture([models[0], einet.Mixture(models[1:], [0.3, 0.7])], [0.5, 0.5]), x


def same(actual: Tensor, expected: Tensor) -> bool:
    """Bit by bit; means of categories are NaN in both."""
    return torch.equal(actual.nan_to_num(-9.0), expected.nan_to_num(-9.0))


def in_threads(work: Callable[[int], None]) -> None:
    """Run ``work(number)`` in all threads at once; raise what any of them raises."""
    start, errors = threading.Barrier(THREADS), []

    def run(number: int) -> None:
        try:
            start.wait(PATIENCE)
            work(number)
        except BaseException as error:
            errors.append(error)

    # Daemons, so that one that hangs does not keep Python from ending.
    threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + PATIENCE
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    hanging = sum(thread.is_alive() for thread in threads)
    if errors:
        raise errors[0]
    assert hanging == 0, f"{hanging} of {THREADS} threads hang"


@pytest.mark.parametrize("kind", ["Einet", "Mixture"])
def test_all_queries_of_one_model(kind: str):
    """Every thread asks everything, each in an order of its own."""
    model, x = make(kind)
    expected = {name: ask(model, x).detach() for name, ask in QUERIES.items()}

    def work(number: int) -> None:
        names = list(QUERIES)
        for _ in range(ROUNDS if kind == "Einet" else 1):
            for name in names[number:] + names[:number]:
                assert same(QUERIES[name](model, x), expected[name]), name

    in_threads(work)
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("kind", ["Einet", "Mixture"])
def test_all_queries_of_one_posterior(kind: str):
    model, x = make(kind)
    expected = {name: ask(model.given(x)) for name, ask in OF_ONE_POSTERIOR.items()}
    for _ in range(ROUNDS):
        posterior = model.given(x)

        def work(number: int, posterior=posterior) -> None:
            names = list(OF_ONE_POSTERIOR)
            for name in names[number % len(names) :] + names[: number % len(names)]:
                assert same(OF_ONE_POSTERIOR[name](posterior), expected[name]), name

        in_threads(work)


def test_checked_data_are_shared():
    """One batch, checked once, for all threads."""
    model, x = make("Einet")
    batch, expected = as_batch(x, 3), model.given(x).log_evidence

    def work(number: int) -> None:
        rows = slice(number, None)
        close(model.given(batch[rows]).log_evidence, expected[rows])

    in_threads(work)


def test_nothing_is_computed_behind_a_lock_of_a_class():
    """On Python 3.11 a cached property lets one thread compute at a time, whatever the object."""
    source = Path(einet.__file__).parent
    files = list(source.rglob("*.py"))
    assert len(files) > 50
    for file in files:
        assert not re.search(r"\bcached_property\b", file.read_text()), file
