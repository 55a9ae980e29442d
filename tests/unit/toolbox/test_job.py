"""Commands that stay: a terminal of their own, what is typed into it, signals, and their end."""

from __future__ import annotations

import pytest
from tests.unit.toolbox.client import UID, BoxEnded, Client, Done


class Job:
    """A command that runs on, with both of its streams."""

    def __init__(self, box: Client, command: str, **more: object) -> None:
        self.box = box
        self.output = box.open_stream()
        self.input = box.open_stream()
        self.number = box.start_shell(
            command, stdout=self.output, stdin=self.input, merge_stderr=True, stream_limit=-1, **more
        )

    @classmethod
    def in_terminal(cls, box: Client, command: str, rows: int = 24, columns: int = 80) -> Job:
        return cls(box, command, rows=rows, columns=columns)

    @property
    def text(self) -> str:
        return self.box.streams[self.output].decode()

    def expect(self, words: str) -> None:
        self.box.wait_until(lambda: words in self.text)

    def type(self, text: str) -> None:
        self.box.send_chunk(self.input, text.encode())

    def signal(self, number: int) -> None:
        self.box.notify("exec.signal", {"id": self.number, "signal": number})

    def end(self) -> Done:
        return Done(self.box.wait(self.number)["result"])

    def cancel(self) -> Done:
        self.box.call("exec.cancel", {"id": self.number})
        return self.end()


def test_a_terminal_is_one_and_the_untrusted_users(box: Client) -> None:
    job = Job.in_terminal(box, "test -t 0 && test -t 1 && test -t 2 && stty size && stat -c %u $(tty) && : </dev/tty")
    assert job.end().outcome[:2] == ("exited", 0)
    assert box.wait_closed(job.output).decode().split() == ["24", "80", str(UID)]


def test_what_is_typed_is_read_and_answered(box: Client) -> None:
    job = Job.in_terminal(box, 'stty -echo; echo ready; read -r line; echo "got $line"')
    job.expect("ready")
    job.type("hello\n")
    assert job.end().exit_code == 0
    assert box.wait_closed(job.output) == b"ready\r\ngot hello\r\n"


def test_a_new_size_is_told(box: Client) -> None:
    job = Job.in_terminal(box, "trap 'stty size; exit 3' WINCH; echo ready; while :; do sleep 0.05; done")
    job.expect("ready")
    box.notify("exec.resize", {"id": job.number, "rows": 50, "columns": 132})
    assert job.end().exit_code == 3
    assert b"50 132" in box.wait_closed(job.output)


def test_ctrl_c_reaches_the_foreground_and_not_the_toolbox(box: Client) -> None:
    job = Job.in_terminal(box, "trap 'echo caught; exit 4' INT; echo ready; while :; do sleep 0.05; done")
    job.expect("ready")
    job.type("\x03")
    assert job.end().exit_code == 4
    assert box.exec("true").exit_code == 0


def test_everything_that_was_written_comes_before_the_end(box: Client) -> None:
    job = Job.in_terminal(box, "seq 20000")
    assert job.end().exit_code == 0
    lines = box.wait_closed(job.output).decode().split()
    assert lines == [str(number) for number in range(1, 20001)]


def test_what_is_left_behind_holds_no_terminal_up(box: Client) -> None:
    job = Job.in_terminal(
        box, "setsid sh -c 'touch /tmp/up; exec sleep 1000' & until [ -e /tmp/up ]; do sleep 0.02; done; echo started"
    )
    done = job.end()
    assert (done.exit_code, done.raw["background"]) == (0, 1)
    job.expect("started")  # an answer overtakes data
    box.call("kill_all")


def test_a_signal_reaches_the_job_alone(box: Client) -> None:
    first = Job(box, "trap 'echo hup; exit 5' HUP; echo ready; while :; do sleep 0.05; done")
    second = Job(box, "echo ready; read -r line; echo $line")
    first.expect("ready")
    second.expect("ready")
    first.signal(1)
    assert first.end().exit_code == 5
    second.type("alive\n")
    assert second.end().exit_code == 0
    assert box.wait_closed(second.output) == b"ready\nalive\n"


def test_a_signal_to_what_is_over_is_none(box: Client) -> None:
    job = Job(box, "true")
    assert job.end().exit_code == 0
    job.signal(9)
    box.notify("exec.resize", {"id": job.number, "rows": 5, "columns": 5})
    assert box.exec("true").exit_code == 0


def test_an_escapee_of_a_job_dies_with_it_and_neighbours_do_not(box: Client) -> None:
    neighbour = Job.in_terminal(box, "stty -echo; echo ready; read -r line; echo $line")
    job = Job.in_terminal(box, "setsid setsid sleep 4321 & nohup sleep 4322 & echo ready; sleep 4323")
    neighbour.expect("ready")
    job.expect("ready")
    assert job.cancel().raw["status"] == "killed"
    assert box.shell("pgrep -f 'sleep 432[123]'").exit_code == 1
    neighbour.type("alive\n")
    assert neighbour.end().exit_code == 0
    assert box.wait_closed(neighbour.output).endswith(b"alive\r\n")


def test_a_flood_waits_for_credit(box: Client) -> None:
    box.is_giving_credit = False
    job = Job.in_terminal(box, "yes")
    box.wait_until(lambda: len(box.streams[job.output]) >= 256 << 10)
    assert box.exec("true").exit_code == 0
    assert len(box.streams[job.output]) == 256 << 10
    assert job.cancel().raw["status"] == "killed"


@pytest.mark.parametrize(
    "size",
    [{"rows": 24}, {"columns": 80}, {"rows": 1001, "columns": 80}, {"rows": 24, "columns": 80, "merge_stderr": False}],
)
def test_a_terminal_that_is_none_is_refused(box: Client, size: dict[str, object]) -> None:
    assert box.fail("exec", {"argv": ["true"], "merge_stderr": True, **size})["code"] == "invalid_argument"


@pytest.mark.parametrize("number", [0, 32, -9, "9"])
def test_a_signal_that_is_none_ends_the_channel(box: Client, number: object) -> None:
    box.notify("exec.signal", {"id": 1, "signal": number})
    with pytest.raises(BoxEnded):
        box.wait_until(lambda: False)
