"""One broken rule of the launcher, in the form of every other reason."""
from solver.domain.estimate import Reason

CONSTRAIN = 'ask for a plan with "constraints": {"launcher": "megatron"}'


def broken(rule: str, message: str, fix: str, stage: int | None = None) -> Reason:
    """The reason `launcher.<rule>`: the numbers that clash, and the nearest change."""
    return Reason(code=f"launcher.{rule}", message=message, fix=fix, stage=stage)
