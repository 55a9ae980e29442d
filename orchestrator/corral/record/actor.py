"""Who asked for a run: the CI job when the environment says so, otherwise the user of the operating system."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping

from corral.schema.events import Actor

# Name of the job, then its address, for the systems that set them.
_CI_JOBS = (
    ("GITHUB_ACTIONS", "GITHUB_WORKFLOW", "GITHUB_RUN_ID"),
    ("GITLAB_CI", "CI_JOB_NAME", "CI_JOB_URL"),
    ("JENKINS_URL", "JOB_NAME", "BUILD_URL"),
)


def find_actor(environ: Mapping[str, str]) -> Actor:
    """The actor of this process. A CI job is only as trustworthy as the environment that names it."""
    for mark, name, address in _CI_JOBS:
        if environ.get(mark):
            return Actor(type="ci_job", name=environ.get(name) or mark.lower(), id=environ.get(address, ""))
    uid = os.getuid()
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = f"uid {uid}"
    return Actor(type="os_user", name=user, id=str(uid))
