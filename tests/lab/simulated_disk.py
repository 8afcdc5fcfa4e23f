"""What a loss of power takes: whatever was written and never forced to the disk.

The files are real. Beside them stands what the disk is known to hold: of a file its bytes, of a
folder the names in it, each since the last `fsync`. Of SQLite's write-ahead log, which only grows
between two checkpoints, what is known is its length at the last commit that was waited for.
"""

import os
import random
import shutil
from pathlib import Path


class Disk:
    """The folder of a store: which names and bytes would outlive a loss of power."""

    def __init__(self, root: Path, chance: random.Random):
        self._root = root
        self._chance = chance
        self._whole: set[int] = set()  # files whose bytes are on the disk, by inode
        self._names: dict[Path, dict[str, int]] = {root: {}}  # what a folder's disk says is in it
        self._graves: dict[int, bytes] = {}  # what was deleted, and may come back

    def sync(self, handle: int) -> None:
        """A file or folder was forced to the disk."""
        inode = os.fstat(handle).st_ino
        for folder in self._folders():
            if folder.stat().st_ino == inode:
                self._names[folder] = {e.name: e.inode() for e in os.scandir(folder)}
                return
        self._whole.add(inode)

    def forget(self, path: Path) -> None:
        """A name is about to be deleted or given to another file."""
        path = Path(path)
        if path.exists():
            inode = path.stat().st_ino
            if self._names.get(path.parent, {}).get(path.name) == inode:
                self._graves[inode] = path.read_bytes()

    def rot(self) -> str:
        """Change a byte of some artefact; returns its name, '' where there is none."""
        files = sorted(self._root.glob("artifacts/*/*.parquet"))
        if not files:
            return ""
        path = self._chance.choice(files)
        data = bytearray(path.read_bytes())
        if not data:
            return ""
        data[self._chance.randrange(len(data))] ^= 1 << self._chance.randrange(8)
        times = path.stat()
        path.write_bytes(data)
        os.utime(path, (times.st_atime, times.st_mtime))
        return path.stem

    def lose(self) -> list[str]:
        """Undo what may be undone, a coin for each; says what."""
        lost = self._lose_below(self._root)
        for folder, names in self._names.items():
            for name, inode in sorted(names.items()):
                path, gone = folder / name, inode in self._graves
                if gone and folder.is_dir() and not path.exists() and self._chance.random() < 0.5:
                    path.write_bytes(self._graves[inode])
                    lost.append(f"that {name[:12]} was deleted")
        self._graves.clear()
        for folder in self._folders():  # what is there after a restart is there to stay
            entries = {e.name: e.inode() for e in os.scandir(folder)}
            self._names[folder] = entries
            self._whole |= set(entries.values())
        return lost

    def _lose_below(self, folder: Path) -> list[str]:
        lost: list[str] = []
        for entry in sorted(os.scandir(folder), key=lambda e: e.name):
            path = Path(entry.path)
            if folder == self._root and entry.name.startswith("twin.db"):
                continue
            named = self._names.get(folder, {}).get(entry.name) == entry.inode()
            if not named and self._chance.random() < 0.5:
                lost.append(f"the name {entry.name[:12]}")
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()
            elif path.is_dir():
                lost += self._lose_below(path)
            elif entry.inode() not in self._whole and self._chance.random() < 0.5:
                lost.append(f"bytes of {entry.name[:12]}")
                os.truncate(path, self._chance.randrange(path.stat().st_size + 1))
        return lost

    def _folders(self) -> list[Path]:
        return [self._root, *(Path(p) for p, _, _ in os.walk(self._root) if Path(p) != self._root)]


class Wal:
    """SQLite's file and its write-ahead log: how much of the log is surely on the disk."""

    HEADER, FRAME = 32, 24

    def __init__(self, database: Path, chance: random.Random):
        self.database = database
        self._log = database.with_name(database.name + "-wal")
        self._chance = chance
        self._synced: tuple[bytes, int] = (b"", 0)  # the log's salt, and so many bytes of it
        self._checked = b""

    def committed(self, *, synced: bool) -> None:
        """A transaction was committed, and waited for the disk or not."""
        checked = self.database.read_bytes()
        if synced or checked != self._checked:  # a checkpoint waits for the log too
            self._synced = self._end()
        self._checked = checked

    def _end(self) -> tuple[bytes, int]:
        """The log's salt and where its last frame ends."""
        data = self._log.read_bytes() if self._log.exists() else b""
        salt = data[16:24]
        size = int.from_bytes(data[8:12], "big") + self.FRAME
        end = self.HEADER
        while data[end + 8 : end + 16] == salt and end + size <= len(data):
            end += size
        return salt, min(end, len(data))

    def keep(self) -> None:
        """Note what the machine had written when the power failed."""
        self._kept = self.database.read_bytes(), *self._end()
        self._bytes = self._log.read_bytes() if self._log.exists() else b""

    def lose(self) -> list[str]:
        """Cut or tear the log anywhere behind what is surely on the disk; all files are closed."""
        whole, salt, end = self._kept
        sure = self._synced[1] if salt == self._synced[0] else self.HEADER
        cut = self._chance.randint(min(sure, end), end)
        data = bytearray(self._bytes[:end])
        if self._chance.random() < 0.5:
            del data[cut:]
        else:
            data[cut : cut + 512] = bytes(len(data[cut : cut + 512]))
        self.database.write_bytes(whole)
        self._log.write_bytes(data)
        self.database.with_name(self.database.name + "-shm").unlink(missing_ok=True)
        self._synced = self._end()
        self._checked = whole
        return [f"{end - cut} bytes of the log"] if cut < end else []
