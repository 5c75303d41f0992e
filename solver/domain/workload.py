"""What is done with the model: training (or, later, serving)."""
from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Le, Len

from solver.domain.bounds import PYDANTIC, Positive, Size, refuse_bad_values

Precision = Literal["bf16", "fp16", "fp32", "fp8", "nvfp4"]
GradientPrecision = Literal["fp32", "bf16"]
AttentionKernel = Literal["auto", "flash_1", "flash_2", "flash_3", "unfused"]
NormKernel = Literal["auto", "fused", "eager"]
OptimizerName = Literal["adam", "adamw", "sgd", "adafactor", "muon", "adam8bit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomOptimizer:
    """An optimizer by the bytes of state that it keeps per parameter (fp32 master weights included)."""

    __pydantic_config__ = PYDANTIC
    bytes_per_parameter: Annotated[float, Ge(0.0), Le(64.0)]

    def __post_init__(self) -> None:
        refuse_bad_values(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthBin:
    """Sequences of one length in a mixed-length batch."""

    __pydantic_config__ = PYDANTIC
    length: Size
    share: Annotated[float, Ge(0.0), Le(1.0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingWorkload:
    """One optimizer step: `global_batch_size` sequences of `seq_len` tokens."""

    __pydantic_config__ = PYDANTIC
    kind: Literal["training"] = "training"
    seq_len: Annotated[int, Ge(1), Le(16_777_216)]
    global_batch_size: Annotated[int, Ge(1), Le(4_194_304)]
    precision: Precision = "bf16"
    optimizer: OptimizerName | CustomOptimizer = "adam"
    gradient_precision: GradientPrecision = "fp32"
    attention_kernel: AttentionKernel = "auto"
    norm_kernel: NormKernel = "auto"
    training: Literal["full", "lora"] = "full"
    sequence_length_histogram: Annotated[tuple[LengthBin, ...], Len(1, 4096)] | None = None

    def __post_init__(self) -> None:
        refuse_bad_values(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingWorkload:
    """Requests of one shape at a given concurrency."""

    __pydantic_config__ = PYDANTIC
    kind: Literal["serving"]
    input_len: Size
    output_len: Size
    concurrency: Annotated[int, Ge(1), Le(1_000_000)]
    weight_precision: Literal["bf16", "fp16", "fp32", "fp8", "int8", "int4", "nvfp4"] = "bf16"
    kv_precision: Literal["bf16", "fp16", "fp8", "int8"] = "bf16"
    max_ttft_ms: Positive | None = None
    max_tpot_ms: Positive | None = None

    def __post_init__(self) -> None:
        refuse_bad_values(self)


Workload = TrainingWorkload | ServingWorkload
