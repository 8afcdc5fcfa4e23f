"""A process that adds one to a stored number many times: read, then write, in one transaction."""

import sys

from sqlalchemy import select, update

from twin.lab.store import models as m
from twin.lab.store import open_store


def add_ones(url: str, run: str, times: int) -> None:
    store = open_store(url)
    mine = m.runs.c.id == run
    for _ in range(times):
        with store._database.write() as connection:
            live = connection.execute(select(m.runs.c.live).where(mine)).scalar_one()
            connection.execute(
                update(m.runs).where(mine).values(live={"n": live["n"] + 1, "pad": "x" * 2000})
            )


if __name__ == "__main__":
    add_ones(sys.argv[1], sys.argv[2], int(sys.argv[3]))
