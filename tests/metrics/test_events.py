"""The log as a table: what happened within the horizon, in order; what lasts has no end."""

import math

from twin.metrics.events import SCHEMA, Event, events_table


def test_events_stand_in_order_of_time_and_equal_times_as_they_were_entered():
    log = [Event(2.0, "b"), Event(1.0, "a"), Event(2.0, "c")]
    assert events_table(log, 10.0)["kind"].to_list() == ["a", "b", "c"]


def test_what_lies_past_the_horizon_is_left_out_and_what_ends_there_is_open():
    log = [Event(1.0, "in", end_s=2.0), Event(1.0, "long", end_s=11.0), Event(10.5, "out"),
           Event(1.0, "moment"), Event(1.0, "for good", end_s=math.inf)]  # fmt: skip
    table = events_table(log, 10.0)
    ends = dict(zip(table["kind"], table["end_s"], strict=True))
    assert ends == {"in": 2.0, "long": None, "moment": None, "for good": None}


def test_an_empty_log_keeps_its_columns():
    table = events_table([], 1.0)
    assert table.height == 0 and table.schema == SCHEMA
