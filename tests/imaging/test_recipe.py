"""Recipes for models of images."""

import pytest
import torch

import einet
from einet.imaging import Recipe
from einet.imaging.recipe import pixel_tree
from einet.layers import LinearLayer


def test_the_paper():
    recipe = Recipe.paper()
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
    learner = recipe.learner()
    assert learner.prior is None
    assert [learner.step_size_at(progress) for progress in (0.0, 0.5, 1.0)] == [0.5] * 3


def test_the_default_has_the_papers_structure_and_a_prior():
    recipe = Recipe()
    assert recipe.graph((32, 32, 3)) == Recipe.paper().graph((32, 32, 3))
    leaves, learner = recipe.leaves(), recipe.learner()
    assert isinstance(leaves, einet.Gaussian)
    assert leaves.max_variance.item() == pytest.approx(255**2)
    assert learner.prior == einet.Prior(1.0, 1.0)
    assert [learner.step_size_at(progress) for progress in (0.0, 1.0)] == pytest.approx([0.5, 0.05])


def few_and_many(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Images of a bright square somewhere, in noise: few to learn from, many more of the kind."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 40, (300, 8, 8), generator=generator)
    for image, (top, left) in zip(images, torch.randint(0, 5, (300, 2)).tolist(), strict=True):
        image[top : top + 4, left : left + 4] += 180
    rows = images.byte().flatten(1)
    return rows[:60], rows[60:]


def test_the_default_knows_unseen_images_better_than_the_paper():
    train, test = few_and_many(0)
    nats = {}
    for name, recipe in {"default": Recipe(num_sums=8), "paper": Recipe.paper(num_sums=8)}.items():
        model = recipe.model((8, 8, 1), num_clusters=2)
        model.fit(train, optimizer=recipe.learner(), epochs=10, progress=False)
        nats[name] = model.log_prob(test).mean().item()
    assert nats["default"] > nats["paper"] + 10


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
    paper = [Recipe.paper().clusters_for(images) for images in (1, 99, 250, 10_000, 600_000)]
    assert paper == [1, 1, 2, 100, 100]
    counts = [Recipe().clusters_for(images) for images in (1, 499, 2600, 50_000, 600_000)]
    assert counts == [1, 1, 5, 100, 100]
    assert Recipe.tree().clusters_for(600_000) == 1


def test_a_model():
    model = Recipe.paper(num_sums=2).model((4, 4, 3), num_clusters=3)
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
    with pytest.raises(ValueError, match="images_each must be an integer >= 1, got 0"):
        Recipe(images_each=0)
    with pytest.raises(ValueError, match="axes must be one of vertical, both, got 'horizontal'"):
        Recipe(axes="horizontal")
    with pytest.raises(ValueError, match="family must be one of gaussian, binomial, categorical"):
        Recipe(family="poisson")
