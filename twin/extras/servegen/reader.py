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
    """One client: its windows (start s, req/s, shape, code in PATTERNS), and by field of FIELDS its
    length tables (start s, tokens f8[k], cumulative probabilities f8[k])."""

    windows: list[tuple[float, float, float, int]] = field(default_factory=list)
    lengths: dict[str, list[tuple[float, np.ndarray, np.ndarray]]] = field(default_factory=dict)


def read_servegen(reading: Reading) -> Columns:
    """Columns of requests drawn from ServeGen's files; raises TraceError if a client lacks one."""
    label, client_by_number = reading.label, dict[int, _Client]()
    for piece in reading.pieces():
        if name_match := PIECE_NAME.search(piece.name):
            client = client_by_number.setdefault(int(name_match[1]), _Client())
            if name_match[2] == "trace.csv":
                client.windows = _client_windows(piece)
            else:
                client.lengths = _length_tables(piece)
    for number, client in sorted(client_by_number.items()):
        for file, contents in (("trace.csv", client.windows), ("dataset.json", client.lengths)):
            if not contents:
                raise TraceError(f"{label} has no chunk-{number}-{file}: the set is incomplete")
        if any(window[1] for window in client.windows) and not all(client.lengths.values()):
            raise TraceError(f"{label}: chunk-{number} has requests but no lengths for them")
    return _sampled_columns(label, client_by_number, reading.limits.rows)


FORMAT = Format(
    "servegen", "ServeGen", "folder or tar of CSV and JSON",
    "rates, burstiness and lengths by client, sampled from a seed",
    lambda head: PIECE_NAME.search(head.name) is not None, read_servegen,
)  # fmt: skip


def _client_windows(piece: Piece) -> list[tuple[float, float, float, int]]:
    """(start s, req/s, shape, code in PATTERNS) of each window of a client. Raises TraceError."""
    windows: list[tuple[float, float, float, int]] = []
    for line_number, line in enumerate(text_of(piece).split("\n"), 1):
        if not line.strip():
            continue
        location = f"{piece.name} line {line_number}"
        cells = line.strip().split(",")
        if len(cells) != 6:
            raise TraceError(
                f"{location} has {len(cells)} values: window start, rate, CV, pattern, shape and "
                "scale must stand there"
            )
        pattern_code = PATTERNS.get(cells[3].strip().lower())
        if pattern_code is None:
            raise TraceError(f"{location}: pattern = {cells[3][:20]!r} must be Gamma or Weibull")
        try:
            start_s, req_per_s, shape = float(cells[0]), float(cells[1]), float(cells[4])
        except ValueError:
            raise TraceError(f"{location}: start, rate and shape must be numbers") from None
        is_possible = 0 <= start_s < 366 * DAY_S and 0 <= req_per_s < MOST_RATE
        if not (is_possible and (req_per_s == 0 or 0 < shape < 1e6)):
            raise TraceError(f"{location}: start, rate and shape must be finite and not negative")
        if windows and start_s <= windows[-1][0]:
            raise TraceError(f"{location}: windows must be in order of time")
        windows.append((start_s, req_per_s, shape, pattern_code))
    return windows


def _length_tables(piece: Piece) -> dict[str, list[tuple[float, np.ndarray, np.ndarray]]]:
    """Windows by field of FIELDS: (start s, tokens f8[k], cumulative probabilities f8[k])."""
    json_windows = decode_json(text_of(piece), piece.name, "an object of windows")
    if type(json_windows) is not dict or not json_windows:
        raise TraceError(f"{piece.name} is not an object of windows")
    tables: dict[str, list[tuple[float, np.ndarray, np.ndarray]]] = {kind: [] for kind in FIELDS}
    for start_text in json_windows:
        if not str(start_text).isdecimal() or type(json_windows[start_text]) is not dict:
            raise TraceError(f"{piece.name}: window {start_text[:20]!r} must be a start in seconds")
    for start_text in sorted(json_windows, key=int):
        for kind in FIELDS:
            lengths_text = json_windows[start_text].get(kind)
            location = f"{piece.name} window {start_text} {kind}"
            if type(lengths_text) is not str:
                raise TraceError(f"{location} must be a text like {{45: 0.01, 46: 0.02}}")
            tokens, chances = _lengths_and_chances(lengths_text, location)
            if chances.sum() > 0:
                tables[kind].append((float(start_text), tokens, np.cumsum(chances) / chances.sum()))
    return tables


def _lengths_and_chances(text: str, where: str) -> tuple[np.ndarray, np.ndarray]:
    """(tokens f8[k], probabilities f8[k]) of '{45: 0.01}' or the like; raises TraceError."""
    if not (pairs := text.strip(" {}\n")):
        return np.zeros(0), np.zeros(0)  # a window without requests
    try:
        tokens, chances = np.array(pairs.replace(":", ",").split(","), np.float64).reshape(-1, 2).T
    except ValueError:
        raise TraceError(f"{where} must be a text like {{45: 0.01, 46: 0.02}}") from None
    is_possible = (tokens >= 0) & (tokens <= MOST_TOKENS) & (chances >= 0) & (chances <= 1)
    if not is_possible.all():
        raise TraceError(f"{where} holds a length or a probability that cannot be")
    return tokens, chances


def _sampled_columns(name: str, clients: dict[int, _Client], most_rows: int) -> Columns:
    """Requests of clients by number, drawn by SEED; raises TraceError beyond `most_rows`."""
    client_times_s, request_count = [np.zeros(0)], 0
    lengths_by_field = {name: [np.zeros(0, np.int64)] for name in FIELDS}
    for client_number, client in sorted(clients.items()):
        stream_name = f"servegen/{client_number}"
        window_s = min(np.diff([window[0] for window in client.windows]), default=DAY_S)
        arrivals_s = []
        for index, (start_s, req_per_s, shape, code) in enumerate(client.windows):
            if (window_requests := round(req_per_s * window_s)) == 0:
                continue
            if (request_count := request_count + window_requests) > most_rows:
                raise TraceError(
                    f"{name} stands for more than {most_rows:,} requests: keep some of its clients"
                )
            fractions = np.empty(window_requests)  # of the window that has passed
            _draw_times(stream_key(SEED, f"{stream_name}/arrivals/{index}"), code, shape, fractions)
            arrivals_s.append(start_s + window_s * fractions)
        if arrivals_s:
            client_times_s.append(np.concatenate(arrivals_s))
            for token_field, drawn_lengths in lengths_by_field.items():
                random_key = stream_key(SEED, f"{stream_name}/{token_field}")
                client_lengths = client.lengths[token_field]
                drawn_lengths.append(_lengths_at(client_lengths, client_times_s[-1], random_key))
    all_times_s = np.concatenate(client_times_s)
    return Columns(
        ticks=all_times_s, ticks_per_s=1.0, in_order=False,
        input_tokens=np.concatenate(lengths_by_field["input_tokens"]),
        output_tokens=np.concatenate(lengths_by_field["output_tokens"]),
        source_row=np.arange(1, all_times_s.size + 1), warnings=[SAMPLED],
    )  # fmt: skip


@lazy_entry
def _draw_times(key: np.uint64, pattern_code: int, shape: float, times: np.ndarray) -> None:
    """Fill `times` f8[n] with sorted times in (0, 1) whose n + 1 gaps, scaled to sum 1, are drawn
    from random stream `key`. pattern_code: distribution of the gaps, a value of PATTERNS; shape:
    its parameter, if it is gamma or Weibull."""
    sum_of_gaps = 0.0
    for i in range(times.size + 1):
        if pattern_code == 1:
            sum_of_gaps += gamma(key, i, shape)
        elif pattern_code == 2:
            sum_of_gaps += weibull(key, i, shape)
        else:
            sum_of_gaps += exponential(key, i)
        if i < times.size:
            times[i] = sum_of_gaps
    for i in range(times.size):
        times[i] = times[i] / sum_of_gaps if sum_of_gaps > 0.0 else 0.5


def _lengths_at(
    windows: list[tuple[float, np.ndarray, np.ndarray]], times: np.ndarray, key: np.uint64
) -> np.ndarray:
    """Lengths i8[n] in tokens at sorted times f8[n] (s), drawn from random stream `key` out of the
    window that contains each; windows: (start s, lengths, cumulative probabilities)."""
    starts_s = np.array([start_s for start_s, _, _ in windows])
    window_of_time = np.maximum(np.searchsorted(starts_s, times, side="right") - 1, 0)
    lengths = np.empty(times.size, np.int64)
    begin_index = 0
    for index, (_, window_lengths, cumulative) in enumerate(windows):
        end_index = int(np.searchsorted(window_of_time, index, side="right"))
        _draw_lengths(window_lengths, cumulative, key, begin_index, lengths[begin_index:end_index])
        begin_index = end_index
    return lengths


@lazy_entry
def _draw_lengths(
    values: np.ndarray, cumulative: np.ndarray, key: np.uint64, first_draw: int, lengths: np.ndarray
) -> None:
    """Fill lengths i8[n] with tokens from `values`, drawn by inversion of their cumulative
    probabilities; first_draw: number of the first draw of the stream `key`."""
    for i in range(lengths.size):
        value_index = int(np.searchsorted(cumulative, uniform(key, first_draw + i), side="right"))
        lengths[i] = int(values[min(value_index, values.size - 1)] + 0.5)
