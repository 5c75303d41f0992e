"""The pipeline layout string of `--pipeline-model-parallel-layout`.

Letters: E embedding, t decoder layer, m multi-token-prediction layer, L loss. `|` ends a chunk, `x*n` and `(...)*n` repeat, commas are cosmetic.
Chunk k of the string is virtual chunk k // PP of pipeline rank k % PP.
"""
import re
from collections.abc import Sequence

from solver.errors import ExportError

_GROUP = re.compile(r"\(([^()]*)\)\*(\d{1,4})")
_LETTER = re.compile(r"([^()*])\*(\d{1,4})")
_WHOLE = re.compile(r"Et+m*L")


def write_layout(chunk_layers: Sequence[int], mtp_layers: int) -> str:
    """The string for decoder layers per chunk, in model order; the embedding comes first, MTP layers and the loss last.

    >>> write_layout([13, 12, 9, 6], 0)
    'Et*13|t*12|t*9|t*6L'
    """
    chunks = [_repeat("t", n) for n in chunk_layers]
    chunks[0] = "E" + chunks[0]
    chunks[-1] += _repeat("m", mtp_layers) + "L"
    text = "|".join(chunks)
    if count_layout(text) != [(n, mtp_layers if k == len(chunks) - 1 else 0) for k, n in enumerate(chunk_layers)]:
        raise ExportError(f"the pipeline layout {text!r} does not hold {list(chunk_layers)} layers per chunk")
    return text


def count_layout(text: str) -> list[tuple[int, int]]:
    """Decoder and MTP layers of every chunk of a layout string; `ExportError` on anything malformed.

    >>> count_layout("Et|(tt|)*2mL")
    [(1, 0), (2, 0), (2, 0), (0, 1)]
    """
    expanded = _GROUP.sub(_times, text.replace(",", ""))
    expanded = _LETTER.sub(_times, expanded)
    if not _WHOLE.fullmatch(expanded.replace("|", "")):
        raise ExportError(f"a pipeline layout is E, then t, then m, then L, with E and L once; found {text!r}")
    return [(chunk.count("t"), chunk.count("m")) for chunk in expanded.split("|")]


def _times(match: re.Match[str]) -> str:
    return match.group(1) * int(match.group(2))


def _repeat(letter: str, times: int) -> str:
    return letter * times if times <= 1 else f"{letter}*{times}"
