from __future__ import annotations

import os
import pwd

from corral.record import find_actor
from corral.schema.events import Actor


def test_actor_is_the_user_of_the_operating_system() -> None:
    uid = os.getuid()
    assert find_actor({}) == Actor(type="os_user", name=pwd.getpwuid(uid).pw_name, id=str(uid))


def test_actor_is_the_ci_job_where_the_environment_names_one() -> None:
    environ = {"GITHUB_ACTIONS": "true", "GITHUB_WORKFLOW": "tests", "GITHUB_RUN_ID": "42"}
    assert find_actor(environ) == Actor(type="ci_job", name="tests", id="42")
    assert find_actor({"GITLAB_CI": "true"}) == Actor(type="ci_job", name="gitlab_ci")
