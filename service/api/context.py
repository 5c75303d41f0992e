"""What a route needs of the running service."""
from typing import Annotated, TypeAlias

from fastapi import Depends, Request

from service.api.access import owner_of
from service.jobs.core import Core


def core_of(request: Request) -> Core:
    core: Core = request.app.state.core
    return core


CoreOf: TypeAlias = Annotated[Core, Depends(core_of)]
Owner: TypeAlias = Annotated[str, Depends(owner_of)]
