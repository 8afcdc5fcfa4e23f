from twin.policies.reuse import fetch_pays


def test_what_takes_longer_to_read_than_to_compute_is_not_read():
    assert fetch_pays(1.0, 1.1) and not fetch_pays(1.1, 1.0)
