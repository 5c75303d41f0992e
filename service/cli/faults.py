"""What went wrong, said at a terminal, and the exit code that goes with it."""
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.console import Console

from service.cli.words import printable
from solver.errors import ExportError, Fault, InputError

NO_PLAN = 1                                                 # a legal request without a plan, a layout that would not run, an export that cannot be
BAD_INPUT = 2
FILE_WIDTH = 180


@contextmanager
def reported() -> Iterator[None]:
    """Bad input ends the program with exit code 2 and every fault, an impossible export with 1 and the reason; bugs keep their traceback."""
    from service.api.strict_json import MalformedJson

    try:
        yield
    except (InputError, MalformedJson) as e:
        say(e.faults)
        raise typer.Exit(BAD_INPUT) from None
    except ExportError as e:
        errors().print(printable(str(e)), style="red")
        raise typer.Exit(NO_PLAN) from None


def say(faults: tuple[Fault, ...]) -> None:
    out = errors()
    out.print(f"{len(faults)} {'fault' if len(faults) == 1 else 'faults'} in the input", style="bold red")
    for fault in faults:
        out.print(f"  {printable(fault.pointer or '/')}: {printable(fault.message)}")
        if fault.legal:
            out.print(f"    legal: {printable(fault.legal)}", style="dim")


def errors() -> Console:
    return Console(stderr=True, markup=False, highlight=False, soft_wrap=True)


def output() -> Console:
    """Standard output; as wide as a long row where it is no terminal."""
    return Console(markup=False, highlight=False, width=None if sys.stdout.isatty() else FILE_WIDTH)
