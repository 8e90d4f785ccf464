"""The size of models that are not built yet."""

import pytest

import einet
from einet.imaging import Recipe
from einet.imaging.recipe_size import check_model, count_partitions


@pytest.mark.parametrize("grid", [(8, 8), (7, 12), (1, 9)])
@pytest.mark.parametrize("delta", [1, 2, 3.0, 100, (4, 2), (6, 3, 1)])
@pytest.mark.parametrize("axes", ["vertical", "both"])
def test_partitions_are_about_those_of_the_graph(grid, delta, axes):
    graph = einet.poon_domingos(grid, delta, [1] if axes == "vertical" else [0, 1])
    partitions, regions = count_partitions(grid, delta, axes)
    if isinstance(delta, tuple):
        # Boxes at the borders are smaller than others.
        assert len(graph.partitions) <= partitions <= 3 * len(graph.partitions) + 10
    else:
        assert (partitions, regions) == (len(graph.partitions), len(graph.scopes))


@pytest.mark.parametrize(
    ("recipe", "clusters", "words"),
    [
        (Recipe(num_sums=10**9), 1, "models with num_sums 1000000000, 1 clusters"),
        (Recipe(num_sums=40), 10**9, "models with num_sums 40, 1000000000 clusters"),
        (Recipe(delta=1, axes="both"), 1, "structures of 500×500×3 variables, delta 1 and both"),
        (Recipe.tree(), 1, "structures of 500×500×3 variables"),
    ],
)
def test_models_that_do_not_fit_are_not_begun(recipe, clusters, words):
    with pytest.raises(MemoryError, match=f"{words}.* take .* GB of memory, but .* GB are free"):
        recipe.model((500, 500, 3), clusters)


def test_trees_that_do_not_fit_are_not_begun():
    with pytest.raises(MemoryError, match="models with num_sums 1000000, 1 clusters take"):
        Recipe.tree(num_sums=10**6).model((9, 9, 1), 1)


def test_models_of_usual_sizes_fit():
    check_model((128, 128, 3), 40, 1, delta=32.0, axes="vertical")
    check_model((28, 28, 1), 64, 1, delta=None, family="categorical")
