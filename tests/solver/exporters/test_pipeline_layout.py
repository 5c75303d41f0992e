"""The layout string holds what it was asked to hold; the counter reads published strings."""
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.errors import ExportError
from solver.exporters.megatron.pipeline_layout import count_layout, write_layout


@given(st.lists(st.integers(1, 200), min_size=1, max_size=64), st.integers(0, 3))
def test_written_layouts_count_back(chunks: list[int], mtp: int) -> None:
    counted = count_layout(write_layout(chunks, mtp))
    assert [layers for layers, _ in counted] == chunks
    assert [m for _, m in counted] == [0] * (len(chunks) - 1) + [mtp]


def test_published_strings_are_read() -> None:
    recipe = count_layout("Et|(tt|)*30mL")             # 61 layers and one MTP layer over 8 ranks of 4 chunks
    assert len(recipe) == 32 and sum(t for t, _ in recipe) == 61 and recipe[-1] == (0, 1)
    assert count_layout("E,t*13|t*12|t*9|t*6,L") == [(13, 0), (12, 0), (9, 0), (6, 0)]
    assert count_layout("E,(t)*13|(t)*14,L") == [(13, 0), (14, 0)]


@pytest.mark.parametrize("text", ["", "EL", "t|tL", "Et|t", "EEt|tL", "Etm|tL", "Et|x|tL", "Et|(tL"])
def test_malformed_strings_are_refused(text: str) -> None:
    with pytest.raises(ExportError):
        count_layout(text)
