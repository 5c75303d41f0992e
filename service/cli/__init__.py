"""The terminal: the solver's functions and the service's, as `shardwright`."""


def main() -> None:
    """Entry point of the console script."""
    from service.cli.commands import app

    app()
