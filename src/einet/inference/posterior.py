"""What can be asked of a distribution given evidence, whatever the model."""

from __future__ import annotations

from einet.inference.cdf import cdf
from einet.inference.conditional import log_prob
from einet.inference.conditioned import Conditioned
from einet.inference.entropy import entropy
from einet.inference.imputation import impute
from einet.inference.information import mutual_information
from einet.inference.marginals import log_marginals
from einet.inference.moments import mean, variance
from einet.inference.quantiles import interval, median, quantile
from einet.inference.states import probabilities

__all__ = ["Posterior"]


class Posterior(Conditioned):
    """p(· | e) for a batch of evidence, one row each; made by ``model.given``.

    All answers are exact, except :meth:`mode`, and but for the integrals that :meth:`entropy` and
    :meth:`mutual_information` of continuous variables are, which come with their error. Rows with
    p(e) = 0 have no posterior: for them :meth:`log_prob` is −∞, and every other query raises,
    naming them.

    **What is kept.** The first question makes one pass up the circuit, and the first expectation
    one down. Both serve all further questions: they are kept as long as the evidence fits one
    piece of work, and up to 256 MiB on a CPU, 1 GiB on a GPU; a mixture's components share that.
    Beyond, passes are made again. A posterior keeps its evidence besides, log p(e), mean and
    variance.

    **When the model changes.** Answers are of the parameters at the time of asking: what was kept
    is dropped once they have changed.

    **Threads.** Any number may ask the same posterior: questions record no gradients and hold no
    lock, and what is kept appears as a whole. (On a GPU they take turns at passes that are
    recorded: see :mod:`einet.inference.recorded`.)

    Example:
        >>> import einet, torch
        >>> x = torch.randn(200, 1, generator=torch.manual_seed(0)) * torch.ones(200, 3)
        >>> model = einet.Einet(einet.random_trees(3, 1, 2), einet.Gaussian(), num_sums=4)
        >>> model = model.initialize(x, clusters=True)
        >>> posterior = model.given([[-1.0, float("nan"), float("nan")], [1.0, 1.0, float("nan")]])
        >>> mean = posterior.mean()
        >>> mean[1, :2], (mean[0, 2] < mean[1, 2]).item()  # observed cells keep their values
        (tensor([1., 1.], dtype=torch.float64), True)
        >>> posterior.interval(0.9)[0].shape, posterior.sample(5).shape
        (torch.Size([2, 3]), torch.Size([5, 2, 3]))
    """

    # One line for each question; its file says what it answers.
    log_prob = log_prob
    mean = mean
    variance = variance
    log_marginals = log_marginals
    probabilities = probabilities
    cdf = cdf
    quantile = quantile
    interval = interval
    median = median
    entropy = entropy
    mutual_information = mutual_information
    impute = impute
