"""A service in a process of its own, to be killed: `python -m tests.service.server DIARY`, with settings from the environment."""
import sys

import uvicorn

from service.main import create_app
from service.settings import Settings
from tests.service.planners import FakePlanner

if __name__ == "__main__":
    settings = Settings()
    uvicorn.run(create_app(settings, planner=FakePlanner(diary=sys.argv[1])), host=settings.host, port=settings.port, log_config=None,
                access_log=False, timeout_graceful_shutdown=settings.shutdown_grace_s)
