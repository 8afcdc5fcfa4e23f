"""Decode where something else limits: how many requests are under way, and how fast tokens come.
Arrivals are even. Places on ranks are dealt evenly, but before prefill: some of a rank's requests
still wait for it, and an iteration waits for the rank of which the fewest do."""

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from twin.kernels.rng import apply
from twin.model.batch import LoadCurve
from twin.model.predict import Prediction, Traffic, predict_decode

STEPS, CLOSE = 12, 2e-3  # to find how many are under way, and how close they come


def predict_at_load(
    full: Prediction, traffic: Traffic, hot: LoadCurve, clients: int = 0
) -> Prediction:
    """The prediction `full` with decode (`fed`) at the requests/s that a limit outside decode
    allows. Requests in progress follow from Little's law, rate x time, as the time is nearly linear
    in them. hot: load of the hottest die by tokens; clients: of a closed loop, else 0."""
    decode, costs, role = full.decode, full.costs, full.costs.decode_role
    allowed_requests_per_s = full.requests_per_s
    if decode is None or role is None or full.limit == "decode":
        return full
    fewest_requests = 1.0 / role.ranks  # one request alone: there is no part of one
    last_requests = role.slots(decode.batch_per_npu)
    last_stay_s = last_requests / decode.requests_per_s
    active, decode_at_load = max(allowed_requests_per_s * last_stay_s, fewest_requests), decode
    ranks, reserved = role.ranks, 0.0  # mean requests with a reserved slot, also those in prefill
    if clients and full.limit == "prefill":  # those that wait for an API server have none
        reserved = min(clients / (ranks * role.pool.instances), last_requests)
    for _ in range(STEPS):
        if active == last_requests:
            break
        max_rank_requests = (
            expected_max_decoding(ranks, reserved, active / reserved) if reserved > active else 0.0
        )
        decode_at_load = predict_decode(costs, traffic, hot, active, full.limit, max_rank_requests)
        if abs(decode_at_load.requests_per_s / allowed_requests_per_s - 1.0) < CLOSE:
            break
        stay_s = active / decode_at_load.requests_per_s
        stay_slope = (stay_s - last_stay_s) / (active - last_requests)
        last_requests, last_stay_s = active, stay_s
        denominator = max(1e-3, 1.0 - allowed_requests_per_s * stay_slope)
        next_requests = allowed_requests_per_s * (stay_s - stay_slope * active) / denominator
        # A step in the time (one request more on the fullest die) may point far off the line.
        active = min(max(next_requests, 0.5 * last_requests, fewest_requests), 2.0 * last_requests)
    return replace(full, fed=decode_at_load)


def expected_max_decoding(ranks: int, places: float, share: float) -> float:
    """Expected number of decoding requests on the rank with most, if each has `places` reserved
    slots. A reserved slot decodes independently with probability `share`: binomial numbers."""
    least_places = math.floor(places)
    ranks_with_more = round((places - least_places) * ranks)
    few_chances, more_chances = (_cumulative_chances(least_places + more, share) for more in (0, 1))
    chance_at_most = apply(lambda x: x ** (ranks - ranks_with_more), few_chances)
    chance_at_most *= apply(lambda x: x**ranks_with_more, more_chances[:-1])
    return float((1.0 - chance_at_most).sum())  # over k the chance that some rank has more than k


def _cumulative_chances(places: int, share: float) -> NDArray[np.float64]:
    """Probabilities f8[places + 1] that at most 0, 1, ... of `places` independent requests decode,
    each with probability `share`."""
    decoding = np.arange(places + 1.0)
    log_factorials = np.cumsum(apply(math.log, np.maximum(decoding, 1.0)))
    log_choices = log_factorials[-1] - log_factorials - log_factorials[::-1]
    chances = apply(
        math.exp,
        log_choices + decoding * math.log(share) + (places - decoding) * math.log1p(-share),
    )
    return np.minimum(np.cumsum(chances), 1.0)
