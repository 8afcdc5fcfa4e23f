"""Formulas behind the screens: a few at a time, whoever asks."""

import threading

from twin.ui import formulas


def test_no_more_than_three_formulas_are_worked_out_at_once_and_all_are_answered():
    many, at_work, most = threading.Barrier(3), [0], [0]
    counting = threading.Lock()

    def work():
        with counting:
            at_work[0] += 1
            most[0] = max(most[0], at_work[0])
        many.wait(60)  # only ends when three are in here
        with counting:
            at_work[0] -= 1
        return "answer"

    answers = []
    threads = [
        threading.Thread(target=lambda: answers.append(formulas.answer_or_reason(work)))
        for _ in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == ["answer"] * 12
    assert most == [3]
