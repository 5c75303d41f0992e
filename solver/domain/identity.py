"""Values as dictionary keys by identity."""
from typing import Generic, TypeVar

T = TypeVar("T")


class Same(Generic[T]):
    """A value as a dictionary key by identity: hashing a large cluster field by field would cost more than pricing."""

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value
