"""Divisors."""
from hypothesis import given
from hypothesis import strategies as st

from solver.axes.divisors import divisors, nearest_divisor


@given(n=st.integers(1, 5000))
def test_divisors_are_all_and_sorted(n):
    assert divisors(n) == tuple(d for d in range(1, n + 1) if n % d == 0)


@given(n=st.integers(1, 500), wanted=st.integers(1, 1000))
def test_nearest_divisor_is_a_divisor_and_closest(n, wanted):
    found = nearest_divisor(n, wanted)
    assert n % found == 0
    assert abs(found - wanted) == min(abs(d - wanted) for d in divisors(n))
