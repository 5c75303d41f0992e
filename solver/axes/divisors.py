"""Divisors of small numbers."""
import math


def divisors(n: int) -> tuple[int, ...]:
    """All divisors of n >= 1, ascending.

    >>> divisors(12)
    (1, 2, 3, 4, 6, 12)
    """
    low = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
    return tuple(dict.fromkeys(low + [n // d for d in reversed(low)]))


def nearest_divisor(n: int, wanted: int) -> int:
    """The divisor of n closest to `wanted`, the smaller of two.

    >>> nearest_divisor(40, 6), nearest_divisor(12, 100)
    (5, 12)
    """
    return min(divisors(n), key=lambda d: (abs(d - wanted), d))
