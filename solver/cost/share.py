"""What one GPU of a unit sees of a micro-batch."""
from dataclasses import dataclass

from solver.domain.degrees import Framework


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one GPU sees of a micro-batch: b sequences of its own, s tokens each over cp GPUs, tensors over t."""

    sequences: float                                       # b, after the split by dp; may be a fraction where that does not divide
    seq_len: int
    tp: int
    cp: int
    ep: int
    etp: int
    sequence_parallel: bool
    kernel: str                                            # attention kernel generation
    eager_norm: bool
    framework: Framework | None = None                     # whose habits of keeping tensors count

    @property
    def tokens(self) -> float:
        """T = b s / c."""
        return self.sequences * self.seq_len / self.cp

    @property
    def replicated(self) -> float:
        """Share of the T h tensors outside tensor-parallel blocks that this GPU holds: 1 / t under sequence parallelism."""
        return 1.0 / self.tp if self.sequence_parallel else 1.0
