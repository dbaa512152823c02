"""A publisher's files, fetched whole: checked by md5, tried again when a line breaks."""

import hashlib
import logging
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

from fedpn.core.errors import UserError
from fedpn.core.extras import needed
from fedpn.core.pace import rate, time_left
from fedpn.data.sources.guard import plain_file
from fedpn.data.sources.publishers import Publisher

TRIES = 3
SECONDS = 5.0  # between two lines of progress
PAUSE = 1.0  # seconds before the second try, twice as many before the third


def fetch(name: str, publisher: Publisher, into: Path, given: Sequence[Path]) -> list[Path]:
    """Finds a publisher's files among those that the user put there, or downloads them.

    `into` is a directory of the caller's own; the last place in `given` is the one that an error
    tells the user to put files in.
    """
    found = packaged(publisher)
    if found:
        return found
    paths = []
    for file, md5 in publisher.files.items():
        local = next((place / file for place in given if (place / file).exists()), None)
        if local is None:
            try:
                local = download(f"{publisher.url}/{file}", md5, into)
            except (OSError, ValueError) as error:
                raise _offline(name, publisher, file, given[-1], error) from error
        elif (actual := _md5(local)) != md5:
            raise UserError(
                f"{local} has the md5 {actual} and the publisher's has {md5}; fetch it again from "
                f"{publisher.url}/{file}"
            )
        paths.append(local)
    return paths


def packaged(publisher: Publisher) -> list[Path]:
    """The files as an operating system's package holds them; it checks what it installs."""
    for place in publisher.packaged:
        paths = [place / file for file in publisher.files]
        if all(path.is_file() for path in paths):
            return paths
    return []


def download(url: str, md5: str, into: Path) -> Path:
    """Fetches one file; it appears under its name only when it is whole."""
    for attempt in range(1, TRIES):
        try:
            return _try(url, md5, into)
        except (OSError, ValueError) as error:
            if _is_refusal(error):
                raise
        time.sleep(PAUSE * attempt)
    return _try(url, md5, into)


def _try(url: str, md5: str, into: Path) -> Path:
    with needed(f"downloading {url}"):
        import pooch

    pooch.get_logger().setLevel(logging.WARNING)  # the bar says it better
    name = url.rsplit("/", 1)[1]
    answers: list[Any] = []
    keep = {"response": lambda answer, **_: answers.append(answer)}
    with _bar(name) as bar:
        fetcher = pooch.HTTPDownloader(progressbar=bar, chunk_size=1 << 16, hooks=keep)
        try:
            return Path(pooch.retrieve(url, f"md5:{md5}", name, into, downloader=fetcher))
        finally:
            for answer in answers:  # pooch leaves a broken line open
                answer.close()


def _is_refusal(error: Exception) -> bool:
    """A 404 stays a 404; a broken line, a busy server or a damaged file may do better."""
    response = getattr(error, "response", None)
    return response is not None and 400 <= response.status_code < 500


def _offline(
    name: str, publisher: Publisher, file: str, place: Path, error: Exception
) -> UserError:
    files = ", ".join(publisher.files)
    return UserError(
        f"the dataset {name!r} is not at hand and {publisher.url}/{file} could not be fetched "
        f"({_reason(error)}): fetch {files} from {publisher.url} by other means "
        f"and put it into {place}"
    )


def _reason(error: Exception) -> str:
    """The libraries' messages are pages long."""
    response = getattr(error, "response", None)
    if response is not None:
        return f"the server answers {response.status_code}"
    if "hash" in str(error):
        return f"its checksum was wrong {TRIES} times"
    return f"no whole answer in {TRIES} tries"


def _md5(path: Path) -> str:
    plain_file(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def _bar(name: str) -> AbstractContextManager["_Bar | _Lines"]:
    return closing(_Bar(name) if sys.stderr.isatty() else _Lines(name))


class _Lines:
    """The same without a terminal: a line now and then."""

    def __init__(self, name: str) -> None:
        self.name, self.total, self.done = name, 0, 0
        self.began = self.shown = time.monotonic()

    def update(self, size: int) -> None:
        self.done += size
        now = time.monotonic()
        if now - self.shown > SECONDS:
            self.shown = now
            print(self.line(now - self.began), file=sys.stderr, flush=True)

    def line(self, spent: float) -> str:
        """How far it has come."""
        size = f" of {self.total / 1e6:.1f}" if self.total else ""
        words = [f"{self.name}: {self.done / 1e6:.1f}{size} MB", rate(self.done / 1e6, spent, "MB")]
        words += [time_left(spent, self.done / self.total)] if self.total else []
        return "  ".join(filter(None, words))

    def reset(self) -> None:
        self.done = 0

    def close(self) -> None:
        """Nothing is open."""


class _Bar:
    """What pooch asks of a progress bar, drawn by rich."""

    def __init__(self, name: str) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
            TransferSpeedColumn,
        )

        columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn())
        pace = (TransferSpeedColumn(), TimeRemainingColumn())
        self.progress = Progress(*columns, *pace, console=Console(stderr=True))
        self.task = self.progress.add_task(name, total=None)
        self.progress.start()

    @property
    def total(self) -> float | None:
        return self.progress.tasks[0].total

    @total.setter
    def total(self, size: int) -> None:
        self.progress.update(self.task, total=size or None)

    def update(self, size: int) -> None:
        self.progress.advance(self.task, size)

    def reset(self) -> None:
        self.progress.update(self.task, completed=0)

    def close(self) -> None:
        self.progress.stop()
