"""One scenario folder: how it is laid out, run, and compared with what it expects.

input/          the workspace
scenario.json   the request, and what happens around it
script.json     what the model says (docs/reference/script.md); its own `expect` is held, too
expected/       run.json: how it ended, events that must and must not be there, what the model was shown;
                patch.diff, when there is one and its bytes do not depend on a compressor ("exact_patch": false);
                tree.json: the workspace with the patch applied
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import docker

from corral import app
from corral.agent.budget import Limits
from corral.agent.run import Outcome
from corral.errors import PatchConflict
from corral.llm.scripted import ScriptedModel, load_script
from corral.patch.apply import apply_patch
from corral.record import read_events, verify_record
from corral.sandbox.base import BoxInfo
from corral.schema.events import Event, EventKind, ToolStarted
from corral.schema.messages import Role
from corral.schema.path import show_path
from corral.schema.policy import ApprovalAnswer, ApprovalRequest

_WRAPPED = re.compile(r'<untrusted source="[^"]+" id="(\d{20})">\n')


@dataclass
class Hook:
    """Something that happens outside while a call runs."""

    on: str
    edit: dict[str, str] = field(default_factory=dict)
    kill_box: bool = False
    cancel: bool = False


@dataclass
class Scenario:
    """scenario.json"""

    task: str
    until: str | None = None
    preset: str | None = None
    plan: bool = False
    git: bool = True
    """Whether the workspace has a .git."""
    files: dict[str, str] = field(default_factory=dict)
    """More of the workspace: what no repository should hold as a file of its own."""
    limits: dict[str, Any] = field(default_factory=dict)
    approver: dict[str, str] | None = None
    """The answer by tool: yes or no."""
    hook: dict[str, Any] | None = None
    after: dict[str, str] = field(default_factory=dict)
    """What the user edits between run and apply."""

    @classmethod
    def load(cls, folder: Path) -> Scenario:
        return cls(**json.loads((folder / "scenario.json").read_text(encoding="utf-8")))


class Approver:
    def __init__(self, answers: dict[str, str]) -> None:
        self._answers = answers

    async def request(self, request: ApprovalRequest) -> ApprovalAnswer:
        approved = self._answers[request.call.name] == "yes"
        reason = "" if approved else "not the whole file"
        return ApprovalAnswer(approved=approved, digest=request.digest, reason=reason, by="test")


class ScenarioRun:
    """Runs one scenario in a real box and keeps what is needed to judge it."""

    def __init__(self, folder: Path, workspace: Path, image: str) -> None:
        self.folder = folder
        self.workspace = workspace
        self.scenario = Scenario.load(folder)
        self.model = ScriptedModel(load_script(folder / "script.json"))
        self.git: dict[str, str] = {}
        self._image = image
        self._box: BoxInfo | None = None
        self._task: asyncio.Task[Any] | None = None
        self._killing: list[asyncio.Future[None]] = []

    async def run(self) -> app.AgentOutcome:
        lay_out(self.folder / "input", self.workspace, self.scenario)
        scenario = self.scenario
        request = app.AgentRequest(
            workspace=self.workspace,
            image=self._image,
            task=scenario.task,
            until=scenario.until,
            preset=scenario.preset,
            plan=scenario.plan,
            limits=Limits(**scenario.limits),
        )
        approver = Approver(scenario.approver) if scenario.approver is not None else None
        run = app.run_agent(
            request, client=self.model, approver=approver, watch=self._watch, on_box=lambda box: self._keep(box)
        )
        self.git = read_tree(self.workspace / ".git")
        self._task = asyncio.ensure_future(run)
        done: app.AgentOutcome = await self._task
        await asyncio.gather(*self._killing)
        assert done.watch_error is None
        return done

    def _keep(self, box: BoxInfo) -> None:
        self._box = box

    def _watch(self, event: Event) -> None:
        hook = Hook(**self.scenario.hook) if self.scenario.hook else None
        if hook is None or not isinstance(event.payload, ToolStarted) or event.payload.call_id != hook.on:
            return
        for name, text in hook.edit.items():
            (self.workspace / name).write_text(text)
        if hook.kill_box:
            self._killing.append(asyncio.ensure_future(asyncio.to_thread(self._kill_box)))
        if hook.cancel:
            assert self._task is not None
            asyncio.get_running_loop().call_later(0.3, self._task.cancel)

    def _kill_box(self) -> None:
        assert self._box is not None
        client = docker.from_env()
        try:
            client.api.kill(self._box.box_id)
        finally:
            client.close()


def lay_out(source: Path, workspace: Path, scenario: Scenario) -> None:
    """The workspace, with modes that do not depend on who checked the repository out."""
    shutil.copytree(source, workspace)
    for name, text in scenario.files.items():
        path = workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for path in (workspace, *workspace.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
    if scenario.git:
        git = workspace / ".git"
        for name in ("objects", "refs/heads"):
            (git / name).mkdir(parents=True)
        (git / "HEAD").write_text("ref: refs/heads/main\n")
        (git / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tbare = false\n")


def describe(done: app.AgentOutcome, run: ScenarioRun, wanted: dict[str, Any]) -> dict[str, Any]:
    """What happened, in the form of expected/run.json: equal when all is as expected, else the differences show."""
    outcome = done.outcome
    events = [one for one in read_events(done.run_dir / "record.jsonl") if isinstance(one, Event)]
    verified = verify_record(done.run_dir / "record.jsonl")
    assert verified.ok and verified.finished
    found: dict[str, Any] = {
        "stop_reason": outcome.ending.reason.value,
        "exit_code": done.exit_code,
        "complete": events[-1].payload.model_dump()["complete"],
        "requests": len(run.model.requests),
        "events": find_in_order(wanted["events"], events),
        "absent": [one for one in wanted["absent"] if not any(matches(one, event) for event in events)],
        "shown": check_shown(wanted["shown"], run.model),
    }
    optional: dict[str, Any] = {
        "summary": outcome.ending.summary,
        "patch": outcome.patch and outcome.patch.sha256,
        "not_exported": describe_left_out(outcome),
        "counts": count_kinds(wanted.get("counts", {}), events),
        "wrapped": find_wrapped(run.model),
        "conflicts": wanted.get("conflicts"),  # judged where the patch is applied
        "exact_patch": wanted.get("exact_patch"),
        "secret": find_unleaked(wanted.get("secret", []), done.run_dir),
    }
    return found | {name: value for name, value in optional.items() if name in wanted}


def describe_left_out(outcome: Outcome) -> dict[str, str]:
    left_out = outcome.patch.not_exported if outcome.patch else ()
    return {show_path(one.path): one.reason.value for one in left_out}


def find_in_order(wanted: list[dict[str, Any]], events: list[Event]) -> list[dict[str, Any]]:
    """The wanted events that are there, each after the one before; the first that is missing ends the list."""
    rest, found = iter(events), []
    for one in wanted:
        if not any(matches(one, event) for event in rest):
            break
        found.append(one)
    return found


def matches(wanted: dict[str, Any], event: Event) -> bool:
    facts = event.payload.model_dump(mode="json") | {"source": event.source.value}
    return event.kind == EventKind(wanted["kind"]) and all(
        facts.get(name) == value for name, value in wanted.items() if name != "kind"
    )


def count_kinds(wanted: dict[str, int], events: list[Event]) -> dict[str, int]:
    return {kind: sum(event.kind == kind for event in events) for kind in wanted}


def check_shown(wanted: dict[str, dict[str, list[str]]], model: ScriptedModel) -> dict[str, dict[str, list[str]]]:
    """For each call, what of the wanted texts its answer holds, and of the unwanted ones lacks."""
    answers = find_answers(model)
    return {
        call: {
            name: [text for text in texts if (text in answers.get(call, "")) is (name == "contains")]
            for name, texts in checks.items()
        }
        for call, checks in wanted.items()
    }


def find_answers(model: ScriptedModel) -> dict[str, str]:
    """What the model was told of each call, by the call's id."""
    messages = [message for request in model.requests for message in request.messages]
    return {message.call_id or "": message.content for message in messages if message.role is Role.TOOL}


def find_wrapped(model: ScriptedModel) -> list[str]:
    """Calls whose output came in one wrapper that its text did not close."""
    found = []
    for call, text in find_answers(model).items():
        opened = _WRAPPED.search(text)
        if opened and text.count(f'</untrusted id="{opened[1]}">') == 1:
            found.append(call)
    return found


def find_unleaked(secrets: list[str], run_dir: Path) -> list[str]:
    """The secrets that stand in none of the files of the run."""
    content = b"".join(path.read_bytes() for path in sorted(run_dir.rglob("*")) if path.is_file())
    return [secret for secret in secrets if secret.encode() not in content]


def apply_result(run: ScenarioRun, done: app.AgentOutcome) -> list[str]:
    """Put the patch on the workspace as the user would. The files in conflict; then nothing was changed."""
    for name, text in run.scenario.after.items():
        (run.workspace / name).write_text(text)
    if done.patch_file is None:
        return []
    before = read_tree(run.workspace)
    try:
        apply_patch(done.patch_file.read_bytes(), run.workspace)
    except PatchConflict as conflict:
        assert read_tree(run.workspace) == before
        return list(conflict.paths)
    return []


def read_tree(root: Path) -> dict[str, str]:
    """Files and links below `root` but not in its .git: name to kind, mode and content, as text that JSON holds."""
    found: dict[str, str] = {}
    for folder, names, files in os.walk(os.fsencode(root)):
        names[:] = [name for name in names if name != b".git"]
        for name in (*files, *(one for one in names if os.path.islink(os.path.join(folder, one)))):
            path = os.path.join(folder, name)
            shown = os.path.relpath(path, os.fsencode(root)).decode("utf-8", "backslashreplace")
            if os.path.islink(path):
                found[shown] = f"link {os.fsdecode(os.readlink(path))}"
            else:
                mode = "755" if os.stat(path).st_mode & 0o100 else "644"
                with open(path, "rb") as file:
                    found[shown] = f"{mode} {file.read().decode('utf-8', 'backslashreplace')}"
    return dict(sorted(found.items()))
