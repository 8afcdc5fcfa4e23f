"""Facts: each with value, unit, source and mark; equal when what they say is equal."""

import pytest

from twin.facts import FactError, facts_from_tables

DIE = {"value": 1.6, "unit": "TB/s", "source": "arXiv 2506.12708v2 3.3.1", "mark": "a"}


def test_a_fact_comes_in_si_units_by_its_dotted_name():
    facts = facts_from_tables({"chips": {"mine": {"hbm": DIE}}})
    assert facts.si("chips.mine.hbm") == 1.6e12
    assert facts.names("chips") == ["mine"]


@pytest.mark.parametrize("missing", ["unit", "source", "mark"])
def test_a_fact_without_a_part_is_named(missing):
    broken = {k: v for k, v in DIE.items() if k != missing}
    with pytest.raises(FactError, match=f"fact hbm has no {missing}"):
        facts_from_tables({"hbm": broken})


def test_an_unknown_mark_and_an_unknown_name_are_refused():
    with pytest.raises(FactError, match="mark 'z'"):
        facts_from_tables({"hbm": DIE | {"mark": "z"}})
    with pytest.raises(FactError, match="no fact is named"):
        facts_from_tables({"hbm": DIE})["ddr"]


def test_facts_that_say_the_same_are_one_key():
    one, two = facts_from_tables({"hbm": DIE}), facts_from_tables({"hbm": dict(DIE)})
    other = facts_from_tables({"hbm": DIE | {"value": 1.7}})
    assert one == two and hash(one) == hash(two)
    assert one != other


def test_a_changed_fact_is_another_digest_and_leaves_the_first_alone():
    one = facts_from_tables({"hbm": DIE, "ratio": DIE | {"value": [1, 2], "unit": ""}})
    other = one.replaced({"hbm": 1.7})
    assert other != one and other.digest != one.digest
    assert (one["hbm"].value, other["hbm"].value) == (1.6, 1.7)
    assert other["hbm"].unit == "TB/s" and other.replaced({"hbm": 1.6}) == one
    assert one.replaced({}) is one
    with pytest.raises(FactError, match="no fact is named"):
        one.replaced({"ddr": 1.0})
    with pytest.raises(TypeError):
        one["ratio"].value[0] = 3


def test_facts_below_a_prefix_are_equal_whatever_stands_beside_them():
    one = facts_from_tables({"a": {"x": DIE}, "b": {"y": DIE}})
    other = one.replaced({"b.y": 2.0})
    assert one.subset("a") == other.subset("a") and one.subset("b") != other.subset("b")


@pytest.mark.parametrize(
    "slip",
    [
        {"mark": {}}, {"mark": ""}, {"mark": "ab"}, {"unit": 3}, {"note": []}, {"saw": "x"},
        {"saw": [1]}, {"value": 10**400, "unit": "dies"}, {"value": 1e301, "unit": "dies"},
    ],
)  # fmt: skip
def test_a_fact_of_another_shape_is_one_sentence(slip):
    fact = {"value": 1, "unit": "", "source": "x", "mark": "a"} | slip
    with pytest.raises(FactError, match=r"fact a\.b") as refused:
        facts_from_tables({"a": {"b": fact}})
    assert len(str(refused.value)) < 200


def test_a_list_is_no_number_and_a_half_no_count():
    facts = facts_from_tables(
        {n: {"value": v, "unit": "", "source": "x", "mark": "a"}
         for n, v in (("some", [1, 2]), ("half", 0.5), ("word", "x"), ("two", 2))}
    )  # fmt: skip
    for name in ("some", "word"):
        with pytest.raises(FactError, match=f"fact {name} must be one number"):
            facts.si(name)
    with pytest.raises(FactError, match="half is 0.5: it must be a count"):
        facts.count("half")
    assert facts.count("two") == 2


def test_a_name_that_cannot_be_printed_is_refused_in_printable_text():
    with pytest.raises(FactError, match="must be printable text") as refused:
        facts_from_tables({"chips": {"a\x00b": DIE}})
    assert str(refused.value).isprintable()
