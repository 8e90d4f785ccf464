"""Worker for LibSPN (`libspn-keras`): one step of its online EM, as a compiled graph.

The model is the same mixture of random binary trees as everywhere in this benchmark. The
leaves learn means and variances, as `einet`'s do; LibSPN keeps these as four accumulators.

Two ways to compile: `graph` is `tf.function`, which is what Keras does by itself; `xla` adds
`jit_compile=True`, which shortens the forward pass on a CPU.
"""

from __future__ import annotations

import argparse
import os

import common
import numpy as np


def prepare(args: argparse.Namespace) -> common.Build:
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
    import tensorflow as tf  # pyright: ignore[reportMissingImports, reportMissingModuleSource]

    tf.config.threading.set_intra_op_parallelism_threads(args.threads)
    tf.config.threading.set_inter_op_parallelism_threads(args.threads)
    # LibSPN's optimiser is written for the Keras optimisers of old. It takes its base class from
    # this name while it is imported, so the old class has to stand there before.
    tf.keras.optimizers.Optimizer = tf.keras.optimizers.legacy.Optimizer
    import libspn_keras as spn  # pyright: ignore[reportMissingImports]

    spn.set_default_sum_op(spn.SumOpEMBackprop())
    if 1 in (args.num_sums, args.replicas):
        # Its default draws from a Dirichlet distribution, which must not have a single component.
        spn.set_default_accumulator_initializer(tf.keras.initializers.RandomUniform(0.5, 1.0))
    jit_compile = args.mode == "xla"

    def build(data: np.ndarray) -> common.Workload:
        tf.random.set_seed(0)
        np.random.seed(0)  # noqa: NPY002  # LibSPN permutes the variables with the global one
        x = tf.constant(data)
        model = spn.models.SequentialSumProductNetwork(_layers(spn.layers, args))
        model.compile(
            loss=spn.losses.NegativeLogLikelihood(),
            optimizer=spn.optimizers.OnlineExpectationMaximization(learning_rate=common.STEP_SIZE),
        )

        # The batch is an argument: a captured constant could be folded into the graph.
        @tf.function(jit_compile=jit_compile)
        def train(batch):
            return model.train_step((batch,))["loss"]

        @tf.function(jit_compile=jit_compile)
        def log_likelihood(batch):
            return model(batch, training=False)

        leaf, *sums = [layer for layer in model.layers if layer.trainable_variables]
        return common.Workload(
            train_step=lambda: train(x).numpy(),
            forward=lambda: log_likelihood(x).numpy(),
            # Two accumulators (numerator, denominator) make one parameter of a leaf.
            parameters=leaf.count_params() // 2 + sum(layer.count_params() for layer in sums),
        )

    return build


def _layers(layers, args: argparse.Namespace) -> list:
    """The layers from the data to the root; 512 variables = scope of a leaf * 2 ** depth."""
    num_sums = args.num_sums
    leaf_scope = common.VARIABLES // 2**args.depth
    inner = [
        layer
        for _ in range(args.depth - 1)
        for layer in (layers.DenseProduct(2), layers.DenseSum(num_sums))
    ]
    return [
        layers.FlatToRegions(num_decomps=args.replicas, input_shape=[common.VARIABLES]),
        layers.NormalLeaf(num_sums, use_accumulators=True, scale_trainable=True),
        layers.PermuteAndPadScopesRandom(),
        layers.ReduceProduct(leaf_scope),
        *inner,
        layers.DenseProduct(2),
        layers.DenseSum(1),
        layers.RootSum(return_weighted_child_logits=False),
    ]


if __name__ == "__main__":
    common.main("LibSPN", prepare, modes=("graph", "xla"))
