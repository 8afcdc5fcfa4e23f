"""A process that adds one to a stored number many times: read, then write, in one transaction."""

import sys

from sqlalchemy import select, update

from twin.lab.store import RunRow, open_store


def add_ones(url: str, run: str, times: int) -> None:
    store = open_store(url)
    named = RunRow.id == run
    for _ in range(times):
        with store._database.write() as session:
            live = session.execute(select(RunRow.live).where(named)).scalar_one()
            more = {"n": live["n"] + 1, "pad": "x" * 2000}
            session.execute(update(RunRow).where(named).values(live=more))


if __name__ == "__main__":
    add_ones(sys.argv[1], sys.argv[2], int(sys.argv[3]))
