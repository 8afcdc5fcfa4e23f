"""ServeGen (alibaba/ServeGen), sampled: `chunk-<client>-trace.csv` (window start s, rate req/s, CV,
pattern, shape, scale) and `chunk-<client>-dataset.json` (6-hour windows of lengths)."""

import re
from dataclasses import dataclass, field

import numpy as np

from twin.kernels.compiled import lazy_entry
from twin.kernels.rng import exponential, gamma, stream_key, uniform, weibull
from twin.lab.traces.formats import SEED, Columns, Format, Reading
from twin.lab.traces.requests import MOST_TOKENS, decode_json, text_of
from twin.lab.traces.source import Piece, TraceError

PIECE_NAME = re.compile(r"(?:^|/)chunk-(\d{1,6})-(trace\.csv|dataset\.json)$")
PATTERNS = {"": 0, "exponential": 0, "poisson": 0, "gamma": 1, "weibull": 2}
MOST_RATE = 1e6
DAY_S = 86_400
FIELDS = ("input_tokens", "output_tokens")
SAMPLED = (
    f"sampled from per-client distributions with seed {SEED}: input and output lengths are "
    "independent, and nothing is known about shared prefixes"
)


@dataclass(slots=True)
class _Client:
    """One client's windows f8[w, 3] (start, rate, shape), patterns, and length tables."""

    windows: list[tuple[float, float, float, int]] = field(default_factory=list)
    lengths: dict[str, list[tuple[float, np.ndarray, np.ndarray]]] = field(default_factory=dict)


def read_servegen(reading: Reading) -> Columns:
    """Columns of the requests of ServeGen's files; raises TraceError for an incomplete set."""
    name, clients = reading.label, dict[int, _Client]()
    for piece in reading.pieces():
        if chunk := PIECE_NAME.search(piece.name):
            client = clients.setdefault(int(chunk[1]), _Client())
            if chunk[2] == "trace.csv":
                client.windows = _client_windows(piece)
            else:
                client.lengths = _length_tables(piece)
    for number, client in sorted(clients.items()):
        for file, contents in (("trace.csv", client.windows), ("dataset.json", client.lengths)):
            if not contents:
                raise TraceError(f"{name} has no chunk-{number}-{file}: the set is incomplete")
        if any(window[1] for window in client.windows) and not all(client.lengths.values()):
            raise TraceError(f"{name}: chunk-{number} has requests but no lengths for them")
    return _sample(name, clients, reading.limits.rows)


FORMAT = Format(
    "servegen", "ServeGen", "folder or tar of CSV and JSON",
    "rates, burstiness and lengths by client, sampled from a seed",
    lambda head: PIECE_NAME.search(head.name) is not None, read_servegen,
)  # fmt: skip


def _client_windows(piece: Piece) -> list[tuple[float, float, float, int]]:
    """(start s, rate req/s, shape, pattern) of each window of a client. Raises TraceError."""
    windows: list[tuple[float, float, float, int]] = []
    for number, line in enumerate(text_of(piece).split("\n"), 1):
        if not line.strip():
            continue
        location = f"{piece.name} line {number}"
        values = line.strip().split(",")
        if len(values) != 6:
            raise TraceError(
                f"{location} has {len(values)} values: window start, rate, CV, pattern, shape and "
                "scale must stand there"
            )
        pattern = PATTERNS.get(values[3].strip().lower())
        if pattern is None:
            raise TraceError(f"{location}: pattern = {values[3][:20]!r} must be Gamma or Weibull")
        try:
            start_s, rate, shape = float(values[0]), float(values[1]), float(values[4])
        except ValueError:
            raise TraceError(f"{location}: start, rate and shape must be numbers") from None
        is_idle = rate == 0
        if not (
            0 <= start_s < 366 * DAY_S and 0 <= rate < MOST_RATE and (is_idle or 0 < shape < 1e6)
        ):
            raise TraceError(f"{location}: start, rate and shape must be finite and not negative")
        if windows and start_s <= windows[-1][0]:
            raise TraceError(f"{location}: windows must be in order of time")
        windows.append((start_s, rate, shape, pattern))
    return windows


def _length_tables(piece: Piece) -> dict[str, list[tuple[float, np.ndarray, np.ndarray]]]:
    """By field its windows: (start s, tokens f8[k], their cumulative probability f8[k])."""
    body = decode_json(text_of(piece), piece.name, "an object of windows")
    if type(body) is not dict or not body:
        raise TraceError(f"{piece.name} is not an object of windows")
    tables: dict[str, list[tuple[float, np.ndarray, np.ndarray]]] = {field: [] for field in FIELDS}
    for key in body:
        if not str(key).isdecimal() or type(body[key]) is not dict:
            raise TraceError(f"{piece.name}: window {key[:20]!r} must be a start in seconds")
    for key in sorted(body, key=int):
        for name in FIELDS:
            text = body[key].get(name)
            location = f"{piece.name} window {key} {name}"
            if type(text) is not str:
                raise TraceError(f"{location} must be a text like {{45: 0.01, 46: 0.02}}")
            values, chances = _lengths_and_chances(text, location)
            if chances.sum() > 0:
                tables[name].append((float(key), values, np.cumsum(chances) / chances.sum()))
    return tables


def _lengths_and_chances(text: str, where: str) -> tuple[np.ndarray, np.ndarray]:
    """(tokens f8[k], probabilities f8[k]) of text like '{45: 0.01}'. where: for messages."""
    if not (items := text.strip(" {}\n")):
        return np.zeros(0), np.zeros(0)  # a window without requests
    try:
        values, chances = np.array(items.replace(":", ",").split(","), np.float64).reshape(-1, 2).T
    except ValueError:
        raise TraceError(f"{where} must be a text like {{45: 0.01, 46: 0.02}}") from None
    is_possible = (values >= 0) & (values <= MOST_TOKENS) & (chances >= 0) & (chances <= 1)
    if not is_possible.all():
        raise TraceError(f"{where} holds a length or a probability that cannot be")
    return values, chances


def _sample(name: str, clients: dict[int, _Client], most_rows: int) -> Columns:
    """Columns of all clients' requests, drawn from a seed. Raises TraceError beyond `most_rows`."""
    times_s, request_count = [np.zeros(0)], 0
    lengths = {name: [np.zeros(0, np.int64)] for name in FIELDS}
    for number, client in sorted(clients.items()):
        stream_name = f"servegen/{number}"
        width_s = min(np.diff([window[0] for window in client.windows]), default=DAY_S)
        arrivals = []
        for index, (start_s, req_per_s, shape, pattern) in enumerate(client.windows):
            if (count := round(req_per_s * width_s)) == 0:
                continue
            if (request_count := request_count + count) > most_rows:
                raise TraceError(
                    f"{name} stands for more than {most_rows:,} requests: keep some of its clients"
                )
            shares = np.empty(count)  # of the window
            _set_times(stream_key(SEED, f"{stream_name}/arrivals/{index}"), pattern, shape, shares)
            arrivals.append(start_s + width_s * shares)
        if arrivals:
            times_s.append(np.concatenate(arrivals))
            for column, lengths_drawn in lengths.items():
                key = stream_key(SEED, f"{stream_name}/{column}")
                lengths_drawn.append(_lengths_of(client.lengths[column], times_s[-1], key))
    all_times_s = np.concatenate(times_s)
    return Columns(
        ticks=all_times_s, ticks_per_s=1.0, in_order=False,
        input_tokens=np.concatenate(lengths["input_tokens"]),
        output_tokens=np.concatenate(lengths["output_tokens"]),
        source_row=np.arange(1, all_times_s.size + 1), warnings=[SAMPLED],
    )  # fmt: skip


@lazy_entry
def _set_times(key: np.uint64, pattern: int, shape: float, times: np.ndarray) -> None:
    """Fill `times` f8[n], sorted, in (0, 1): n + 1 gaps of a pattern of PATTERNS, scaled to sum
    to 1. shape: that of the gamma or Weibull distribution."""
    sum_of_gaps = 0.0
    for i in range(times.size + 1):
        if pattern == 1:
            sum_of_gaps += gamma(key, i, shape)
        elif pattern == 2:
            sum_of_gaps += weibull(key, i, shape)
        else:
            sum_of_gaps += exponential(key, i)
        if i < times.size:
            times[i] = sum_of_gaps
    for i in range(times.size):
        times[i] = times[i] / sum_of_gaps if sum_of_gaps > 0.0 else 0.5


def _lengths_of(
    tables: list[tuple[float, np.ndarray, np.ndarray]], times: np.ndarray, key: np.uint64
) -> np.ndarray:
    """Lengths i8[n] in tokens for sorted times f8[n] in s, each drawn from the window of `tables`
    that contains it: (start s, lengths, cumulative probability)."""
    starts_s = np.array([start_s for start_s, _, _ in tables])
    window_of = np.maximum(np.searchsorted(starts_s, times, side="right") - 1, 0)
    lengths = np.empty(times.size, np.int64)
    first_row = 0
    for k, (_, values, cumulative) in enumerate(tables):
        end_row = int(np.searchsorted(window_of, k, side="right"))
        _draw_lengths(values, cumulative, key, first_row, lengths[first_row:end_row])
        first_row = end_row
    return lengths


@lazy_entry
def _draw_lengths(
    values: np.ndarray, cumulative: np.ndarray, key: np.uint64, first_draw: int, lengths: np.ndarray
) -> None:
    """Fill lengths i8[n] with tokens from `values`, drawn by inversion of their cumulative
    probabilities; first_draw: number of the first draw of the stream `key`."""
    for i in range(lengths.size):
        index = int(np.searchsorted(cumulative, uniform(key, first_draw + i), side="right"))
        lengths[i] = int(values[min(index, values.size - 1)] + 0.5)
