"""A lab with one place: a file names its user and when that lapses. Run it as a program.

`python small_lab.py FOLDER reserve|renew|release USER [LAPSES_S]` exits with 1 if another user has
the place; each call is a line of FOLDER/calls.
"""

import fcntl
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar


@dataclass(frozen=True)
class SmallLab:
    """The lab as its administrator sees it."""

    CALLS: ClassVar = {"command": "reserve", "renew": "renew", "release": "release"}
    """By the keys of `reserve` in a device file."""
    folder: Path
    lapses_s: float = 60.0

    @property
    def user(self) -> str | None:
        """Who has the place now."""
        try:
            user, until_s = (self.folder / "place").read_text().split()
        except FileNotFoundError:
            return None
        return user if float(until_s) > time.monotonic() else None

    @property
    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().split()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else reads and writes between our reading and writing."""
        with (self.folder / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def give_to(self, user: str) -> None:
        with self.locked():
            self.write(user)

    def write(self, user: str) -> None:
        new = self.folder / f"place-{user}"
        new.write_text(f"{user} {time.monotonic() + self.lapses_s}")
        new.rename(self.folder / "place")

    def free(self) -> None:
        (self.folder / "place").unlink(missing_ok=True)

    def words(self, call: str, user: str = "me") -> list[str]:
        """The command of a user."""
        return [
            sys.executable,
            "-I",
            "-S",
            __file__,
            str(self.folder),
            call,
            user,
            str(self.lapses_s),
        ]

    def carry_out(self, call: str, user: str) -> str | None:
        """Why a command is refused; `None` if it is not."""
        with (self.folder / "calls").open("a") as calls:
            calls.write(f"{call}\n")
        with self.locked():
            owner = self.user
            if owner not in ({user} if call != "reserve" else {user, None}):
                return f"the place is used by {owner}" if owner else "the place is free"
            if call == "release":
                self.free()
            else:
                self.write(user)
        return None


if __name__ == "__main__":
    sys.exit(SmallLab(Path(sys.argv[1]), float(sys.argv[4])).carry_out(*sys.argv[2:4]))
