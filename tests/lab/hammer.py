"""Processes that add one to a stored number many times: read, then write, in one transaction."""

import os
import sys

from sqlalchemy import select, update

from twin.lab.store import RunRow, open_store


def add_ones(url: str, run: str, times: int) -> None:
    store = open_store(url)
    named = RunRow.id == run
    for _ in range(times):
        with store.database.write() as session:
            live = session.execute(select(RunRow.live).where(named)).scalar_one()
            more = {"n": live["n"] + 1, "pad": "x" * 2000}
            session.execute(update(RunRow).where(named).values(live=more))


def main(url: str, run: str, times: int, processes: int) -> int:
    """Split into so many processes, none of which has opened anything; the worst exit status."""
    children = []
    for _ in range(processes):
        child = os.fork()
        if not child:
            add_ones(url, run, times)
            os._exit(0)
        children.append(child)
    return max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
