"""The editor on the Supernode page: every change is a step of the draft, priced and undoable."""

from urllib.parse import parse_qsl, urlsplit

import pytest

from tests.ui.conftest import patient
from twin.hardware.fabric import build_fabric
from twin.hardware.placement import place
from twin.lab.library import load_facts, preset
from twin.lab.share import links
from twin.scenario import Edit, Supernode, with_overrides
from twin.ui import session
from twin.ui.pages import PAGES
from twin.ui.pages.supernode import table

PAGE = PAGES["supernode"].script
SLOW = Edit(element="node 7", latency_factor=2.0)
HALF = Edit(element="sub-plane 3", capacity_factor=0.5)


@pytest.fixture
def page(app):
    return app.switch_page(PAGE).run()


def edits(at) -> tuple[Edit, ...]:
    state = at.session_state
    return state["history"][state["position"]].supernode.edits


def edit(at, *changed: Edit):
    """As the picture and the table do it: a step of the draft."""
    state = at.session_state
    draft = state["history"][state["position"]]
    after = with_overrides(draft, {"supernode.edits": [e.model_dump() for e in changed]})
    state["history"] = [*state["history"][: state["position"] + 1], after]
    state["position"] += 1
    return at.run()


def off(*names: str) -> tuple[Edit, ...]:
    return tuple(Edit(element=name, capacity_factor=0.0) for name in names)


def price(at, name):
    found = [m for m in at.metric if m.label.startswith(name)]
    return found[0].value, found[0].delta


def open_tab(at, name):
    at.session_state["supernode-tab"] = name
    return at.run()


def test_a_change_is_priced_and_undone(page):
    assert price(page, "All-to-all") == ("133 GB/s", "unchanged")
    edit(page, HALF)
    assert edits(page) == (HALF,)
    assert price(page, "All-to-all") == ("123.5 GB/s", "-7.14 % of 133 GB/s")
    assert price(page, "Pool read") == ("4.867 TB/s", "-7.14 % of 5.241 TB/s")
    page.button(key="undo").click().run()
    assert edits(page) == ()
    assert price(page, "All-to-all")[1] == "unchanged"
    page.button(key="redo").click().run()
    assert edits(page) == (HALF,)


def test_what_is_cut_off_is_said_so_and_who_moved_off_it(page):
    edit(page, *off("node 5"))
    assert any("Prefill 2 moved off node 5" in c.value for c in page.caption)
    assert price(page, "Pool read")[1] == "unchanged"
    edit(page, *off("RDMA plane"))
    assert price(page, "KV transfer") == ("cut off", "was 21.5 GB/s")


def test_differences_are_listed_and_taken_back_one_by_one(page):
    edit(page, *off(*(f"L2 3.{i}" for i in range(16))), SLOW)
    assert any("L2 3.0 to L2 3.15, 16 in all: **off**" in m.value for m in page.markdown)
    page.button(key="take-back-0").click().run()
    assert edits(page) == (SLOW,)
    page.button(key="take-back-0").click().run()
    assert edits(page) == ()
    assert not any(button.key == "take-back-0" for button in page.button)


def test_a_parameter_stands_among_the_differences(page):
    open_tab(page, "More fields")
    page.segmented_control(key="field:supernode.scale_up:0").set_value("node").run()
    assert any("Scale-up (UB) domain" in m.value and "One node" in m.value for m in page.markdown)
    page.button(key="take-back-0").click().run()
    assert not any(button.key == "take-back-0" for button in page.button)


def test_elements_are_chosen_by_kind_and_found_by_name(page):
    assert page.dataframe[0].value["Element"].to_list()[:2] == ["rack 0", "rack 1"]
    page.selectbox(key="parts-kind:False").set_value("link").run()
    assert not page.exception
    assert any("2,000 rows, of 14,112" in c.value for c in page.caption)
    page.text_input(key="parts-find").set_value("L2 3.12").run()
    assert len(page.dataframe[0].value) == 48
    assert page.button(key="parts-off").disabled


def test_the_picture_asks_once_for_each_thing(store):

    def script(wishes):
        from twin.ui import session
        from twin.ui.pages.supernode import editor

        editor.apply_actions(wishes)
        session.draft()

    nics = [f"NIC 2.{npu}.{die}" for npu in range(8) for die in range(2)]
    first = {"number": 1, "names": ["L1 0.0", *nics], "capacity": 0.5}
    at = patient(script, args=([first],)).run()
    assert len(edits(at)) == 17  # the NICs of a node are 16
    at.run()
    assert len(at.session_state["history"]) == 2
    link = {"number": 2, "names": ["L1 0.0", "L2 0.0"], "capacity": 0.25, "link": True}
    back = {"number": 3, "names": ["node 2", "L1 0.0"], "restore": True}
    at = patient(script, args=([first, link, back],)).run()
    assert edits(at) == ()
    undo = {"number": 4, "step": -1}
    at = patient(script, args=([first, link, back, undo],)).run()
    assert Edit(element="L1 0.0", to="L2 0.0", capacity_factor=0.25) in edits(at)


def dragged(*wishes):
    """The app after some drags, and the parts of each instance's dies by its name."""

    def script(wishes):
        from twin.ui import session
        from twin.ui.pages.supernode import editor as fabric_editor

        session.draft()
        fabric_editor.apply_actions(wishes)

    at = patient(script, args=([{"number": k, **w} for k, w in enumerate(wishes, 1)],)).run()
    assert not at.exception
    scenario = at.session_state["history"][at.session_state["position"]]
    fabric = build_fabric(scenario.supernode, session.facts())
    return at, {one.name: one.spans() for one in place(scenario, fabric).instances}


def test_an_instance_that_is_dragged_sits_where_it_was_dropped_and_the_others_stay(store):
    as_packed = dragged()[1]
    assert as_packed["prefill 3"] == [(96, 127)] and as_packed["decode 0"] == [(192, 511)]
    at, seats = dragged(
        {"names": ["node 40"], "move": "prefill 2"},
        {"names": ["node 44"], "move": "prefill 1"},
        {"names": ["node 46"], "move": "prefill 2"},
        {"names": ["L1 3.2"], "move": "prefill 0"},
    )
    assert at.session_state["fabric-outcome"][1]  # no NPU is there
    assert seats == as_packed | {
        "prefill 1": [(704, 735)],
        "prefill 2": [(736, 767)],
    }
    _, undone = dragged({"names": ["node 40"], "move": "prefill 2"}, {"step": -1})
    assert undone == as_packed


def test_who_is_displaced_by_a_dragged_instance_takes_what_is_free(store):
    _, seats = dragged(
        {"names": ["node 44"], "move": "prefill 1"}, {"names": ["node 44"], "move": "prefill 3"}
    )
    assert seats["prefill 3"] == [(704, 735)]
    assert seats["prefill 1"] == [(32, 63)]  # where it was at first: the first that are free


def test_an_instance_in_parts_stays_as_well(store):
    _, seats = dragged(
        {"names": ["node 31"], "move": "prefill 0"}, {"names": ["node 46"], "move": "prefill 1"}
    )
    assert len(seats["decode 0"]) > 1 and seats["prefill 1"] == [(736, 767)]
    once = dragged({"names": ["node 31"], "move": "prefill 0"})[1]
    assert seats == once | {"prefill 1": [(736, 767)]}


def test_rows_of_the_table_are_changed_and_restored_as_one_step(store):

    def script():
        from twin.scenario import Edit
        from twin.ui import session
        from twin.ui.pages.supernode import editor, table

        def link():
            fabric = editor.fabric_of(session.draft().supernode)
            [row] = (
                table.matching_rows(table.rows_of(fabric, "link"), "L2 3.12")
                .filter(table.pl.col("Element") == "L1 20.3")
                .to_dicts()
            )
            return row

        editor.apply_edits((Edit(element="sub-plane 3", capacity_factor=0.5),))
        assert link()[table.NOW] == 0.5 * link()[table.BUILT]
        table.set_parts([link()], 7.0, table.RATE)
        table.set_parts([link()], 7.0, table.RATE)  # a second time is no other step
        assert link()[table.NOW] == 7.0
        table.set_parts([link()], 3.0, table.WAIT)
        assert abs(link()[table.DELAY] - 3.0) < 1e-6
        table.set_parts([link(), {"Element": "node 3"}], 0.0)
        assert link()[table.NOW] == 0.0
        table.restore_parts([{"Element": "node 3"}])

    at = patient(script).run()
    assert not at.exception
    assert edits(at) == (
        HALF,
        Edit(element="L1 20.3", to="L2 3.12", capacity_factor=0.0, latency_factor=3.0),
    )
    assert len(at.session_state["history"]) == 6


BUILT = build_fabric(Supernode(), load_facts())


def test_a_row_counts_what_leaves_its_element():
    slow = build_fabric(Supernode(edits=(HALF,)), load_facts())
    kinds = {"rack", "node", "NPU", "die", "L1", "L2", "sub-plane"}
    assert table.names_by_kind(BUILT).keys() >= kinds
    [row] = table.matching_rows(table.rows_of(slow, "L1"), "L1 20.3").to_dicts()
    inside = 16 * 28.0 + 4 * 160.0 / 7  # of dies and CPUs
    assert row[table.BUILT] == pytest.approx(448 + inside)
    assert row[table.NOW] == pytest.approx(row[table.BUILT] / 2)
    [row] = table.matching_rows(table.rows_of(slow, "node"), "node 7").to_dicts()
    assert row[table.BUILT] == pytest.approx(7 * 448 + 400 + 50)
    assert row[table.NOW] == pytest.approx(6.5 * 448 + 400 + 50)


@pytest.mark.parametrize(
    ("kind", "typed", "names"),
    [
        ("L2", "L2 3.*", [f"L2 3.{i}" for i in range(16)]),
        ("node", "node 4, 46", ["node 4", "node 46"]),
        ("NPU", "npu-20-1", ["NPU 20.1"]),
        ("L1", "20.3", ["L1 20.3"]),
        ("sub-plane", "Sub-plane 3", ["sub-plane 3"]),
        ("node", "gpu", []),
    ],
)
def test_names_are_found_however_they_are_spelled(kind, typed, names):
    assert table.matching_rows(table.rows_of(BUILT, kind), typed)[table.NAME].to_list() == names


def test_what_is_selected_is_shown_with_the_links_of_a_single_chip():
    rows = table.selection_rows(BUILT, ["node 3", "L1 0.0"])
    assert rows[table.NAME].to_list() == ["node 3", "L1 0.0"]
    assert len(table.selection_rows(BUILT, ["L1 20.3"])) == 1 + 16 + 4 + 16


def test_an_edit_travels_in_the_drafts_link(page):
    edit(page, HALF)
    draft = page.session_state["history"][-1]
    query = dict(parse_qsl(urlsplit(links.scenario_link(draft, "supernode")).query))
    assert links.open_scenario(
        query, session.store(), session.remember_machine
    ).supernode.edits == (HALF,)


def test_several_supernodes_can_be_edited(page):
    page.session_state["history"] = [
        s.model_copy(update={"supernode": s.supernode.model_copy(update={"supernodes": 4})})
        for s in page.session_state["history"]
    ]
    edit(page, Edit(element="sub-plane 2:3", capacity_factor=0.5))
    assert not page.exception
    assert price(page, "All-to-all")[0]


def test_what_cannot_work_is_said_in_sentences(page):
    assert not page.warning
    edit(page, *off("NPU 20.1"))
    assert any("NPU 20.1 has a die without a UB link" in w.value for w in page.warning)


@pytest.mark.parametrize("tab", ["More fields", "Elements and links", "File"])
def test_a_machine_that_cannot_be_wired_keeps_the_last_picture(page, tab):
    open_tab(page, tab)
    state = page.session_state
    draft = state["history"][state["position"]]
    state["history"] = [with_overrides(draft, {"supernode.l2_ports_per_chip": 32})]
    page.run()
    assert not page.exception
    assert "last machine that could be built" in page.error[0].value
    assert edits(page) == ()


def test_a_machine_of_several_kinds_is_summed_by_kind_and_its_rows_can_be_edited(page):
    page.session_state["history"] = [preset("mixed-chips")]
    page.session_state["position"] = 0
    page.session_state["supernode-tab"] = "More fields"
    page.run()
    assert not page.exception
    tile = {metric.label: metric for metric in page.metric}
    assert "Ascend 910C, 192 dies and Ascend 950DT, 128 dies, in 28 nodes" in tile["NPUs"].help
    assert tile["HBM"].value == "30.7 TB"
    assert any("Further kinds of nodes" in each.value for each in page.markdown)


def test_a_factor_out_of_bounds_is_refused_by_its_label_and_bound(store):

    def script():
        from twin.ui import session
        from twin.ui.pages.supernode import table

        session.draft()
        table.set_parts([{"Element": "node 3"}], 1e6)

    at = patient(script).run()
    assert not at.exception
    text = "Capacity = 10,000 should be less than or equal to 100 x."
    assert at.session_state["fabric-outcome"] == (text, True)


def test_what_is_said_of_a_change_does_not_move_the_picture(page):
    kinds = [each.type for each in page.main]
    edit(page, *off("NPU 5.4"))
    place = kinds.index("bidi_component")
    assert "moved off NPU 5.4" in " ".join(str(each.value) for each in page.caption)
    assert [each.type for each in page.main][: place + 1] == kinds[: place + 1]
