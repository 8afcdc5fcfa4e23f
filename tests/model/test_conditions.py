from twin.model import params as q
from twin.model.conditions import CARRIED, slowed

WIRE_AND_LAUNCH = {q.DISPATCH_FIXED, q.COMBINE_FIXED, *CARRIED}


def test_a_slow_die_takes_longer_for_all_that_its_cores_do_and_for_nothing_else(ask):
    vector = ask().costs.decode
    slow = slowed(vector, "decode", 0.5)
    for k in range(q.MODE):
        factor = 1.0 if k in WIRE_AND_LAUNCH else 2.0
        assert slow[k] == factor * vector[k], k
