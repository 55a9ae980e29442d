"""Images of others: which toolbox a box gets, its user among theirs, and what is asked of the engine."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest
from tests.unit.sandbox.test_engine import RawEngine, open_engine

from corral.errors import ImageError
from corral.sandbox.engine import ImageFacts, run_in_thread
from corral.sandbox.entry import SANDBOX_ENTRY
from corral.sandbox.foreign import find_image, prepare_entry
from corral.sandbox.foreign.account import Accounts, load_accounts
from corral.sandbox.foreign.find import FoundImage
from corral.sandbox.foreign.image_file import open_image
from corral.sandbox.foreign.runtime import describe_runtime, find_old_runtimes
from corral.sandbox.image import expected_tag
from corral.sandbox.spec import SandboxSpec

SPEC = SandboxSpec(Path("/w"), Path("/r"), "run1")
PLACE = {"Data": {"UpperDir": "/var/lib/docker/overlay2/1/diff"}}
OURS = {"Id": "sha256:0123456789abcdef", "Os": "linux", "Architecture": "amd64", "GraphDriver": PLACE}


@pytest.fixture
def raw(tmp_path: Path) -> Iterator[RawEngine]:
    engine = RawEngine(tmp_path / "e.sock")
    yield engine
    engine.close()


def serve(raw: RawEngine, images: dict[str, dict[str, object]]) -> None:
    def answer(path: str) -> tuple[int, str]:
        name = unquote(path.removeprefix("/v1.41/images/").removesuffix("/json"))
        return (200, json.dumps(images[name])) if name in images else (404, f'{{"message":"No such image: {name}"}}')

    raw.answer = answer


async def test_an_image_of_others_is_lent_the_toolbox_of_this_installation(raw: RawEngine, tmp_path: Path) -> None:
    serve(raw, {"theirs": OURS | {"Id": "sha256:t"}, expected_tag(): OURS, "corral-sandbox": OURS | {"Id": "sha256:o"}})
    found = await find_image(open_engine(tmp_path), "theirs")
    assert found == FoundImage(
        ImageFacts("sha256:t", platform="linux/amd64"), ImageFacts(str(OURS["Id"]), platform="linux/amd64")
    )


async def test_our_image_under_another_name_brings_its_own(raw: RawEngine, tmp_path: Path) -> None:
    serve(raw, {"sha256:0123": OURS, expected_tag(): OURS})
    assert (await find_image(open_engine(tmp_path), "sha256:0123")).sandbox is None


async def test_an_image_that_claims_to_be_ours_is_lent_a_toolbox_all_the_same(raw: RawEngine, tmp_path: Path) -> None:
    labels = {"corral.image.source": "local", "corral": "1"}
    serve(raw, {"mine": OURS | {"Id": "sha256:m", "Config": {"Labels": labels}}, expected_tag(): OURS})
    assert (await find_image(open_engine(tmp_path), "mine")).sandbox is not None


async def test_our_image_by_its_plain_name_is_the_one_of_this_installation(raw: RawEngine, tmp_path: Path) -> None:
    serve(raw, {expected_tag(): OURS, "corral-sandbox": OURS | {"Id": "sha256:old"}})
    assert (await find_image(open_engine(tmp_path), "corral-sandbox")).facts.id == OURS["Id"]
    serve(raw, {"corral-sandbox": OURS | {"Id": "sha256:old"}})
    assert (await find_image(open_engine(tmp_path), "corral-sandbox")).facts.id == "sha256:old"


async def test_without_our_image_there_is_nothing_to_lend(raw: RawEngine, tmp_path: Path) -> None:
    serve(raw, {"theirs": OURS})
    with pytest.raises(ImageError) as caught:
        await find_image(open_engine(tmp_path), "theirs")
    assert (caught.value.message, caught.value.hint) == (
        "the sandbox image is missing, which lends its toolbox to images such as 'theirs'",
        "build it with: corral image build",
    )


async def test_an_image_that_the_engine_does_not_have(raw: RawEngine, tmp_path: Path) -> None:
    serve(raw, {expected_tag(): OURS})
    with pytest.raises(ImageError) as caught:
        await find_image(open_engine(tmp_path), "theirs")
    assert (caught.value.message, caught.value.hint) == (
        "the engine has no image 'theirs'",
        "pull or build it, or leave --image out",
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"Env": [f"A{n}=1" for n in range(1001)]}, "'theirs' declares more than a box takes"),
        ({"Env": ["A=" + "x" * 65536]}, "'theirs' declares more than a box takes"),
        ({"Volumes": {f"/v{n}": {} for n in range(33)}}, "'theirs' declares more than a box takes"),
        ({"Volumes": {"/opt/corral/runtime": {}}}, "'theirs' declares a volume at '/opt/corral/runtime'"),
        ({"Volumes": {"//opt/./corral/runtime/": {}}}, "'theirs' declares a volume at '//opt/./corral/runtime/'"),
    ],
)
async def test_an_image_has_bounds_too(
    raw: RawEngine, tmp_path: Path, settings: dict[str, object], message: str
) -> None:
    serve(raw, {"theirs": OURS | {"Id": "sha256:t", "Config": settings}, expected_tag(): OURS})
    with pytest.raises(ImageError) as caught:
        await find_image(open_engine(tmp_path), "theirs")
    assert caught.value.message.startswith(message)


async def test_our_own_image_needs_nothing_lent(raw: RawEngine, tmp_path: Path) -> None:
    image = FoundImage(ImageFacts("sha256:o"), None)
    entry = await prepare_entry(open_engine(tmp_path), image, SPEC, uid=7, gid=8, share=lambda name, text: "/x")
    assert (entry, raw.paths) == (SANDBOX_ENTRY, [])


async def test_what_an_image_does_not_have_in_a_box_is_told(raw: RawEngine, tmp_path: Path) -> None:
    facts = ImageFacts("sha256:t", volumes=("/workspace", "/tmp/", "/data", "/a\x1b"))
    image = FoundImage(facts, ImageFacts("sha256:0123456789abcdef"))
    entry = await prepare_entry(open_engine(tmp_path), image, SPEC, uid=7, gid=8, share=lambda name, text: "")
    assert (entry.mounts, entry.home, entry.home_owner, raw.paths) == (
        (describe_runtime("sha256:0123456789abcdef"),),
        "/home/box",
        (7, 8),
        [],
    )
    assert entry.warnings == (
        "the box's user has no name in this image: the engine cannot see our files",
        r"volumes of the image are empty in the box, and not to be written to: /a\x1b, /data",
    )


def test_the_volume_is_named_by_what_it_is_made_of_and_is_nobodys() -> None:
    assert describe_runtime("sha256:0123456789abcdef") == {
        "Type": "volume",
        "Source": "corral-runtime-0123456789ab",
        "Target": "/opt/corral",
        "ReadOnly": True,
        "VolumeOptions": {"NoCopy": True, "Labels": {"corral.runtime": "sha256:0123456789abcdef"}},
    }


async def test_a_runtime_is_old_when_its_image_has_gone(raw: RawEngine, tmp_path: Path) -> None:
    def answer(path: str) -> tuple[int, str]:
        if "/images/json" in path:
            return 200, json.dumps([{"Id": "sha256:new"}, {"Id": "sha256:kept"}])
        names = {"a": "sha256:new", "b": "sha256:gone", "c": "sha256:kept"}
        return 200, json.dumps({"Volumes": [{"Name": n, "Labels": {"corral.runtime": i}} for n, i in names.items()]})

    raw.answer = answer
    assert await run_in_thread(lambda: find_old_runtimes(open_engine(tmp_path)), name="x") == ["b"]


BOX = b"box:x:7:8:box:/home/box:/bin/sh\n"


@pytest.mark.parametrize(
    ("passwd", "expected"),
    [
        (b"", b"root:x:0:0:root:/root:/bin/sh\n" + BOX),
        (b"\n", BOX),
        (b"root:x:0:0::/:\nnode:x:7:7::/home/node:", b"root:x:0:0::/:\n" + BOX + b"node:x:7:7::/home/node:\n"),
        (b"root:x:0:0::/:\nbox:x:1:1::/b:\nboxer:x:2:2::/:\n", b"root:x:0:0::/:\n" + BOX + b"boxer:x:2:2::/:\n"),
        (b"\xff\0:x\n", b"\xff\0:x\n" + BOX),
    ],
    ids=["none", "blank", "same number", "same name", "no text"],
)
def test_the_boxs_user_is_added_to_those_of_the_image(passwd: bytes, expected: bytes) -> None:
    found = Accounts(passwd, b"root:x:0:\nbox:x:1:\n").with_box(7, 8)
    assert (found.passwd, found.group) == (expected, b"root:x:0:\nbox:x:8:\n")


async def test_accounts_that_are_kept_cost_no_question(raw: RawEngine, tmp_path: Path, home: Path) -> None:
    place = home / "xdg_cache_home/corral/accounts/abc.json"
    place.parent.mkdir(parents=True)
    place.write_text('{"passwd": "cm9vdA==", "group": ""}')
    assert await load_accounts(open_engine(tmp_path), "sha256:abc", "run1") == Accounts(b"root", b"")
    assert raw.paths == []


async def test_a_reader_is_removed_also_when_nobody_waits_for_it_any_more(raw: RawEngine, tmp_path: Path) -> None:
    """Cancelled while the engine makes it: the engine makes it all the same."""
    asked = threading.Event()

    def answer(path: str) -> tuple[int, str]:
        if "/containers/create" in path:
            asked.set()
            time.sleep(0.3)
        return 201, '{"Id":"c1"}'

    raw.answer = answer

    async def read() -> None:
        async with open_image(open_engine(tmp_path), "sha256:t", "run1"):
            pass

    reading = asyncio.ensure_future(read())
    await run_in_thread(lambda: asked.wait(5), name="x")
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    created, removed = raw.paths
    name = created.rpartition("name=")[2]
    assert (name.startswith("corral-"), f"/containers/{name}?" in removed) == (True, True)
