"""Tables without lines: one row, one line, cut at the edge of the terminal."""
from rich.table import Table


def plain_table(*headers: str) -> Table:
    """A table whose last column gives way first when the terminal is narrow."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for i, header in enumerate(headers):
        table.add_column(header, no_wrap=i + 1 < len(headers), overflow="fold")
    return table
