"""Published test log-likelihoods to compare with."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["PUBLISHED", "Published"]


class Published(NamedTuple):
    """Mean test log-likelihoods, in nats."""

    #: RAT-SPNs and EiNets, from Table 1 of the paper.
    rat_spn: float
    einet: float
    #: The best we know of among tractable models: hidden Chow–Liu trees with regularisation
    #: (arXiv 2106.02264), PyJuice's (arXiv 2608.12869), ID-SPN (ICML 2014).
    best: float


PUBLISHED = {
    "nltcs": Published(-6.011, -6.015, -5.999),
    "msnbc": Published(-6.039, -6.119, -6.039),
    "kdd-2k": Published(-2.128, -2.183, -2.128),
    "plants": Published(-13.439, -13.676, -12.54),
    "jester": Published(-52.970, -52.563, -52.38),
    "audio": Published(-39.958, -39.879, -39.63),
    "netflix": Published(-56.850, -56.544, -56.21),
    "accidents": Published(-35.487, -35.594, -26.63),
    "retail": Published(-10.911, -10.916, -10.84),
    "pumsb-star": Published(-32.530, -31.954, -22.41),
    "dna": Published(-97.232, -96.086, -79.05),
    "kosarek": Published(-10.888, -11.029, -10.59),
    "msweb": Published(-10.116, -10.026, -9.72),
    "book": Published(-34.684, -34.739, -33.53),
    "each-movie": Published(-53.632, -51.705, -50.54),
    "web-kb": Published(-157.530, -157.282, -150.84),
    "reuters-52": Published(-87.367, -87.368, -83.35),
    "20ng": Published(-152.062, -153.938, -151.47),
    "bbc": Published(-252.138, -248.332, -248.33),
    "ad": Published(-48.472, -26.273, -16.06),
}
