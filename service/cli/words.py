"""Numbers and names as people read them."""


def printable(text: str) -> str:
    """The text without characters that a terminal would act on."""
    return "".join(c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in text)


def seconds(value: float | None) -> str:
    """Four significant digits: 12.34 s, 0.8123 s, 812.3 ms below 100 ms."""
    if value is None:
        return "none"
    return f"{value * 1e3:.4g} ms" if value < 0.1 else f"{value:,.2f} s" if value >= 1000 else f"{value:.4g} s"


def percent(share: float | None) -> str:
    return "unknown" if share is None else f"{share * 100:.1f} %"


def count(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.0f}"


def billions(parameters: int) -> str:
    return f"{parameters / 1e9:.4g} B" if parameters >= 1e9 else f"{parameters / 1e6:.4g} M"


def runs(numbers: list[int]) -> str:
    """Sorted integers with runs joined: 0-3, 5."""
    parts: list[list[int]] = []
    for n in sorted(set(numbers)):
        if parts and n == parts[-1][1] + 1:
            parts[-1][1] = n
        else:
            parts.append([n, n])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)
