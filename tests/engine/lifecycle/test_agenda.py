"""Actions happen at the first border that is not before them, in order, each once."""

from twin.engine.lifecycle.agenda import Agenda


def noted(agenda, at):
    """An agenda's own record of what ran: (name, time of the border)."""
    ran = []
    for name, time_s in at:
        agenda.add(time_s, lambda now_s, name=name: ran.append((name, now_s)))
    return ran


def test_what_is_due_runs_at_the_first_border_that_is_not_before_it():
    agenda = Agenda(0.5)
    ran = noted(agenda, [("late", 0.51), ("now", 0.0), ("on a border", 0.5)])
    agenda.run(0)
    assert ran == [("now", 0.0)] and agenda.next_step() == 1
    agenda.run(1)
    assert ran[1:] == [("on a border", 0.5)] and agenda.next_step() == 2
    agenda.run(7)
    assert ran[2:] == [("late", 3.5)] and agenda.next_step() is None


def test_equal_times_keep_the_order_in_which_they_were_entered():
    agenda = Agenda(1.0)
    ran = noted(agenda, [(k, 1.0) for k in range(20)])
    agenda.run(1)
    assert [name for name, _ in ran] == list(range(20))


def test_what_an_action_enters_without_delay_runs_at_the_same_border():
    agenda, ran = Agenda(0.1), []
    agenda.add(0.25, lambda t: agenda.add(t, ran.append))
    agenda.run(3)
    assert ran == [3 * 0.1] and agenda.next_step() is None


def test_a_multiple_of_the_step_is_not_pushed_a_step_further_by_rounding():
    for k in range(1, 2000):
        agenda = Agenda(0.005)
        agenda.add(k * 0.005, print)
        assert agenda.next_step() == k
