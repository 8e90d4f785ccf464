"""Random binary trees, the structure of RAT-SPNs."""

import random
import warnings

from einet._checks import as_int, as_seed
from einet.structures.arguments import as_variables, check_size
from einet.structures.graph import RegionGraph
from einet.structures.scopes import scope_of

__all__ = ["random_trees"]


def random_trees(num_variables: int, depth: int, replicas: int, seed: int = 0) -> RegionGraph:
    """Randomised balanced binary trees, mixed at the root (RAT-SPNs; Peharz et al., 2019).

    Each replica splits the set of all variables at random into two halves of equal size (up to
    one variable), and each half again, ``depth`` times over, which makes ``2 ** depth`` leaves.
    A region of a single variable is not split further: a ``depth`` beyond
    ``log2(num_variables)``, rounded up, changes nothing and is warned of. Every replica is one
    partition of the root; replicas share no other region, even where scopes coincide.

    Args:
        num_variables: The number of variables, at least 1.
        depth: How many times to split. With 0 the root is a leaf: all variables independent
            (given its entry), and only one replica makes sense.
        replicas: The number of trees, at least 1.
        seed: Seed of the splits, at least 0. The same arguments give the same graph everywhere,
            and the first trees stay the same when ``replicas`` grows.

    Returns:
        The graph; its root is region 0.

    Example:
        >>> graph = random_trees(num_variables=512, depth=4, replicas=10, seed=0)
        >>> len(graph.leaves), len(graph.partitions_of(graph.root)), len(graph.layers())
        (160, 10, 5)
        >>> {len(graph.variables(leaf)) for leaf in graph.leaves}
        {32}
    """
    num_variables = as_variables(num_variables)
    depth = as_int("depth", depth, minimum=0)
    replicas = as_int("replicas", replicas, minimum=1)
    generator = random.Random(as_seed(seed))
    root_is_leaf = depth == 0 or num_variables == 1
    if root_is_leaf and replicas > 1:
        raise ValueError(
            f"replicas must be 1 where the root is not split (depth={depth}, "
            f"num_variables={num_variables}), got {replicas}"
        )
    # The larger half of n variables has ⌈n/2⌉ of them, so that ⌈log2 n⌉ splits leave one in each.
    deepest = (num_variables - 1).bit_length()
    if depth > deepest:
        warnings.warn(
            f"depth={depth} cannot be reached with num_variables={num_variables}: trees end in "
            f"leaves of one variable at depth {deepest}, which is used",
            stacklevel=2,
        )
        depth = deepest
    # A tree has fewer regions where it runs out of variables.
    in_tree = min(2 ** (depth + 1), 2 * num_variables) - 2
    check_size("num_variables, depth and replicas", num_variables, 1 + replicas * in_tree)
    scopes = [(1 << num_variables) - 1]
    partitions: list[tuple[int, tuple[int, int]]] = []
    for _ in range(0 if root_is_leaf else replicas):
        # Halves of a shuffled list are random halves of the set, and so are their halves: one
        # shuffle serves the whole tree. Sorting by random() is a shuffle that stays the same over
        # Python versions, which random.shuffle does not promise.
        keys = [generator.random() for _ in range(num_variables)]
        order = sorted(range(num_variables), key=keys.__getitem__)
        level = [(0, 0, num_variables)]  # region, and its part of the order
        for _ in range(depth):
            below: list[tuple[int, int, int]] = []
            for region, start, end in level:
                if end - start == 1:
                    continue
                middle = (start + end + 1) // 2
                left, right = len(scopes), len(scopes) + 1
                scopes += scope_of(order[start:middle]), scope_of(order[middle:end])
                partitions.append((region, (left, right)))
                below += (left, start, middle), (right, middle, end)
            level = below
    return RegionGraph(num_variables, scopes, partitions)
