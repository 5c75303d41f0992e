"""The only conversions: the contract's units at the edge, SI inside (seconds, bytes, bytes per second, FLOP per second)."""

GIB = 2**30
MIB = 2**20


def bytes_from_gib(gib: float) -> float:
    return gib * GIB


def gib_from_bytes(size_bytes: float) -> float:
    return size_bytes / GIB


def bytes_from_mib(mib: float) -> float:
    return mib * MIB


def bytes_per_s_from_gb_s(gb_s: float) -> float:
    return gb_s * 1e9


def flops_from_tflops(tflops: float) -> float:
    return tflops * 1e12


def seconds_from_us(us: float) -> float:
    return us * 1e-6


def seconds_from_ms(ms: float) -> float:
    return ms * 1e-3


def hours_from_s(seconds: float) -> float:
    return seconds / 3600.0
