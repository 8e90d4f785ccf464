"""The paper's recipe."""

import pytest
import torch

import einet
from einet.imaging import Recipe
from einet.imaging.recipe import pixel_tree
from einet.layers import LinearLayer


def test_the_defaults_are_the_papers():
    recipe = Recipe()
    for side in (32, 64, 28):
        graph = recipe.graph((side, side, 3))
        # A quarter of the width: four vertical stripes, and no other cuts.
        assert len(graph.leaves) == 4
        assert {len(graph.variables(leaf)) for leaf in graph.leaves} == {side * side * 3 // 4}
    leaves = recipe.leaves()
    assert isinstance(leaves, einet.Gaussian)
    assert leaves.min_variance.item() == pytest.approx(1e-6 * 255**2)
    assert leaves.max_variance.item() == pytest.approx(1e-2 * 255**2)
    assert recipe.num_sums == 40


def test_other_cuts_and_leaves():
    recipe = Recipe(delta=2, axes="both", family="categorical")
    assert len(recipe.graph((4, 6, 1)).leaves) == 6
    leaves = recipe.leaves()
    assert isinstance(leaves, einet.Categorical)
    assert leaves.num_states == 256
    assert leaves.numeric
    assert isinstance(Recipe(family="binomial").leaves(), einet.Binomial)
    assert len(Recipe(delta=[4, 2], axes="both").graph((8, 8, 1)).leaves) == 16
    # Narrow images have cuts between all columns.
    assert len(Recipe().graph((2, 3, 1)).leaves) == 3


def test_clusters_need_images():
    counts = [Recipe.clusters_for(images) for images in (1, 99, 250, 10_000, 600_000)]
    assert counts == [1, 1, 2, 100, 100]


def test_a_model():
    model = Recipe(num_sums=2).model((4, 4, 3), num_clusters=3)
    assert isinstance(model, einet.ClusteredEinet)
    assert (model.num_clusters, model.num_variables) == (3, 48)
    x = torch.randint(0, 256, (30, 48), generator=torch.manual_seed(0)).byte()
    model.fit(x, epochs=1, progress=False)
    variance = model.einets[0].leaf.leaf_blocks[0]
    found = variance.family.variance(variance.stored.detach().double())
    assert found.max() <= 1e-2 * 255**2 * 1.0001


def made(images: int = 200) -> torch.Tensor:
    """3×4 images: columns are alike, rows are not."""
    grey = torch.randint(0, 256, (images, 1, 4, 1), generator=torch.manual_seed(0))
    noise = torch.randint(-9, 10, (images, 3, 4, 1), generator=torch.manual_seed(1))
    return (grey + noise).clamp(0, 255).byte().flatten(1)


@pytest.mark.parametrize("family", ["gaussian", "categorical"])
def test_a_learnt_tree(family: str):
    rows, shape = made(), (3, 4, 1)
    recipe = Recipe.tree(family=family, num_sums=3)
    graph = recipe.graph(shape, rows)
    assert graph == pixel_tree(rows, family)
    model = recipe.model(shape, 2, rows=rows)
    assert {layer.__class__ for layer in model.einets[0].circuit.sum_layers} == {LinearLayer}
    history = model.fit(rows, epochs=3, progress=False)
    assert all(means[-1] > means[0] for means in history.train)


def test_the_tree_is_that_of_chow_liu():
    rows = made()
    assert pixel_tree(rows, "binomial", levels=4) == einet.chow_liu(rows // 64)
    by_correlations = einet.chow_liu(rows, information="gaussian", trees=2, seed=3)
    assert pixel_tree(rows, "gaussian", trees=2, seed=3) == by_correlations


def test_a_tree_needs_rows():
    with pytest.raises(ValueError, match="rows must be given for a Chow–Liu tree"):
        Recipe.tree().model((3, 4, 1), num_clusters=1)
    with pytest.raises(ValueError, match="delta and axes are of Poon–Domingos structures, not"):
        Recipe.tree(delta=8)
    with pytest.raises(ValueError, match=r"got delta=None, axes='both'"):
        Recipe.tree(axes="both")


def test_wrong_arguments():
    with pytest.raises(ValueError, match="structure must be one of poon_domingos, chow_liu, got"):
        Recipe(structure="chow-liu")
    with pytest.raises(ValueError, match="axes must be one of vertical, both, got 'horizontal'"):
        Recipe(axes="horizontal")
    with pytest.raises(ValueError, match="family must be one of gaussian, binomial, categorical"):
        Recipe(family="poisson")
