import pytest
from hypothesis import given
from hypothesis import strategies as st

from einet.structures.scopes import describe_scope, scope_of, variables_of


@given(st.sets(st.integers(0, 300)))
def test_scope_and_variables_are_inverse(variables: set[int]):
    scope = scope_of(variables)
    assert scope == sum(1 << variable for variable in variables)
    assert variables_of(scope) == tuple(sorted(variables))


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ([], "{}"),
        ([3], "{3}"),
        ([0, 1], "{0, 1}"),
        ([0, 1, 2], "{0-2}"),
        ([0, 1, 2, 5, 6, 9], "{0-2, 5, 6, 9}"),
        ([0, 2, 4, 6, 8], "{0, 2, 4, ...; 5 variables}"),
        (range(10_000), "{0-9999}"),
    ],
)
def test_descriptions_are_short(variables: list[int], text: str):
    assert describe_scope(scope_of(variables)) == text
