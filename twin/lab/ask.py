"""From a person's words to a question: a preset's key or a file, settings, a trace file.

Shared by every command of the command line. Knows nothing about how a question is answered.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twin.lab.library import load_scenario_file, presets
from twin.spec import Scenario, SpecError, with_overrides

if TYPE_CHECKING:
    from twin.serving.workload import TraceTable


def scenario_named(name: str) -> Scenario:
    """The scenario of a TOML file, or of a preset by its key; raises SpecError."""
    if name.endswith(".toml"):
        return load_scenario_file(Path(name))
    known = {p.key: p.scenario for p in presets()}
    if name in known:
        return known[name]
    close = difflib.get_close_matches(name, known, n=1)
    hint = f", perhaps {close[0]}" if close else "; `presets` lists them"
    raise SpecError(f"{name} is neither a .toml file nor a preset{hint}")


def settings_from(words: Sequence[str]) -> dict[str, Any]:
    """Settings by dotted path from `a.b=value` words; a value is read as TOML, else as text.

    >>> settings_from(["deployment.prefill.instances=4", "router.policy=round_robin"])
    {'deployment.prefill.instances': 4, 'router.policy': 'round_robin'}
    """
    settings: dict[str, Any] = {}
    for word in words:
        path, equals, value = word.partition("=")
        if not equals or not path.strip():
            raise SpecError(f"a setting is written field=value, not {word!r}")
        settings[path.strip()] = _value(value.strip())
    return settings


def _value(text: str) -> Any:
    """A TOML number, boolean or string; anything else is the text itself."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def with_trace(
    scenario: Scenario,
    path: Path,
    rate_multiplier: float = 1.0,
    tree_copies: int = 1,
) -> tuple[Scenario, TraceTable]:
    """The scenario with its workload, and its horizon, replaced by a trace file's.

    The horizon is the trace's duration divided by the multiplier. Nothing is left out as warm-up:
    a recorded stream is the question itself, so its figures are of the whole of it.
    """
    from twin.lab.traces import read_trace

    table = read_trace(path)
    trace = {
        "name": path.name,
        "digest": table.digest,
        "rate_multiplier": rate_multiplier,
        "tree_copies": tree_copies,
    }
    replaced = with_overrides(scenario, {f"workload.trace.{k}": v for k, v in trace.items()})
    # Half a second more, so that the last arrival lies inside.
    horizon_s = max(float(table.arrival_s[-1]) / rate_multiplier + 0.5, 1.0)
    return (
        with_overrides(
            replaced, {"workload.arrivals": "trace", "horizon_s": horizon_s, "warmup_s": 0.0}
        ),
        table,
    )
