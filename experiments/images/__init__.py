"""Section 4.2 of the paper: mixtures of Einets as generative models of images.

    python -m experiments.images mnist --quick
    python -m experiments.images svhn --device cuda
    python -m experiments.images mnist --models all --device cuda

The files: ``settings`` (what can be set), ``variants`` (the named models of each data set),
``datasets`` (where images come from), ``structure`` (the regions), ``soften`` (smooth leaves),
``train`` (one model), ``panels`` (the pictures of Fig. 4), ``store`` (results and resuming).
"""
