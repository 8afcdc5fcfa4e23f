"""Results that come with the project (data/shipped, `make shipped`), for a new machine."""

import gzip
import hashlib
import io
import json
import sys
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import polars.selectors as cs

from twin.facts import Facts
from twin.kernels.compiled import ANSWERS as ROOMS
from twin.kernels.compiled import source_digest
from twin.lab.evidence.bands import coverage_texts, row_bands
from twin.lab.evidence.judge import evidence
from twin.lab.library import ROOT, load_facts, preset
from twin.lab.runs.executor import Runner
from twin.lab.store import Store
from twin.scenario import Scenario, scenario_digest

if TYPE_CHECKING:
    from twin.engine.simulate import Run

FOLDER = ROOT / "data" / "shipped"
PRESETS = ("quickstart", "deepseek-service", "fault-node", "r1-reasoning", "colocated-contrast")
TABLES = ("windows", "instances", "traffic", "shares", "events", "links", "seats")
ABOUT = "about.json"
EVIDENCE = "evidence.json.gz"  # the published rows, judged, and what bands hold of them
ANSWERS = "answers.json"  # figures of every preset's run, by the digest of its question
MADE = (2020, 1, 1, 0, 0, 0)  # of every entry: the same result is the same bytes


@dataclass(frozen=True, slots=True)
class Shipped:
    """A preset's run that is shipped with the project."""

    key: str
    scenario: str  # digest
    engine: str
    facts: str  # digest
    summary: Mapping[str, Any]
    tables: Mapping[str, pl.DataFrame]

    @property
    def stale(self) -> bool:
        """Whether the loaded engine, if any, or these facts would give another result."""
        engine = sys.modules.get("twin.engine.simulate")  # loading it takes longer than a page may
        is_other_engine = engine is not None and self.engine != engine.ENGINE_VERSION
        return is_other_engine or load_facts().digest != self.facts


def _archives(folder: Path) -> Iterator[tuple[str, zipfile.ZipFile, dict[str, Any]]]:
    """Yield each shipped result of a folder: its preset's key, its archive and its description."""
    for path in sorted(folder.glob("*.zip")):
        with zipfile.ZipFile(path) as archive:
            yield path.stem, archive, json.loads(archive.read(ABOUT))


def find_shipped(scenario: Scenario, folder: Path = FOLDER) -> Shipped | None:
    """The shipped result of exactly this scenario; None without one."""
    digest = scenario_digest(scenario)
    for preset_key, archive, description in _archives(folder):
        if description["scenario"] == digest:
            tables = {
                table_name: pl.read_parquet(io.BytesIO(archive.read(f"{table_name}.parquet")))
                for table_name in description.pop("tables")
            }
            return Shipped(key=preset_key, tables=tables, **description)
    return None


def shipped_summaries() -> dict[str, dict[str, Any]]:
    """Summaries of all shipped results, by the digest of the scenario."""
    summaries: dict[str, dict[str, Any]] = json.loads((FOLDER / ANSWERS).read_text("utf-8"))
    return summaries | {about["scenario"]: about["summary"] for _, _, about in _archives(FOLDER)}


def write_run(key: str, scenario: Scenario, run: "Run", engine: str, folder: Path = FOLDER) -> Path:
    """Write a preset's run to `folder` as a zip file; engine: its version. Returns the path."""
    # In single precision, except columns of times that join tables.
    time_columns = cs.by_name("t_s", "end_s", "window_s", require_all=False)
    to_f32 = (cs.float() - time_columns).cast(pl.Float32)
    tables = {
        table_name: run.tables[table_name].with_columns(to_f32)
        for table_name in TABLES
        if table_name in run.tables
    }
    description = {
        "scenario": scenario_digest(scenario), "engine": engine, "facts": load_facts().digest,
        "summary": dict(run.summary), "tables": list(tables),
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    archive_path = folder / f"{key}.zip"
    with zipfile.ZipFile(archive_path, "w", zipfile.ZIP_STORED) as archive:
        about_text = json.dumps(description, indent=1, sort_keys=True)
        archive.writestr(zipfile.ZipInfo(ABOUT, MADE), about_text)
        for table_name, table in tables.items():
            parquet_file = io.BytesIO()
            table.write_parquet(parquet_file, compression="zstd", compression_level=19)
            archive.writestr(
                zipfile.ZipInfo(f"{table_name}.parquet", MADE), parquet_file.getvalue()
            )
    return archive_path


def judge_rows(facts: Facts) -> dict[str, Any]:
    """The published rows, judged: `rows` with error and `band` each; `held`, sentences on bands."""
    judged_rows = evidence(facts)
    band_by_row = row_bands()
    banded_rows = [{**row, "band": band_by_row.get(row["id"])} for row in judged_rows]
    return {"rows": banded_rows, "held": coverage_texts()}


def shipped_evidence(facts: Facts, folder: Path = FOLDER) -> dict[str, Any] | None:
    """The judged rows as shipped; None if unreadable, or if facts, code or rows have changed."""
    try:
        judgement: dict[str, Any] = json.loads(gzip.decompress((folder / EVIDENCE).read_bytes()))
    except (OSError, ValueError):
        return None
    return judgement if judgement["of"] == _evidence_digest(facts) else None


def current_evidence(facts: Facts) -> dict[str, Any]:
    """The judged rows: as shipped, or computed if facts, code or rows have changed."""
    return shipped_evidence(facts) or judge_rows(facts)


def _evidence_digest(facts: Facts) -> str:
    """SHA-256 (hex) over everything that determines the answers to published rows."""
    hasher = hashlib.sha256(f"{facts.digest} {source_digest((*ROOMS, 'lab/evidence'))}".encode())
    for path in (ROOT / "data" / "published.toml", *sorted((ROOT / "data" / "record").iterdir())):
        hasher.update(path.read_bytes())
    return hasher.hexdigest()


def submit_if_stale(store: Store, runner: Runner) -> None:
    """Submit a run of the first preset in the background if its shipped run is stale."""
    scenario = preset(PRESETS[0])
    if scenario is None or (shipped_run := find_shipped(scenario)) is None or not shipped_run.stale:
        return
    store.scenarios.save(scenario)
    runner.submit(scenario)


def main() -> None:
    """Simulate every shipped preset and judge every published row; write the files."""
    from twin.engine.simulate import ENGINE_VERSION, simulate

    for preset_key in PRESETS:
        scenario = preset(preset_key)
        if scenario is None:
            raise ValueError(f"no preset is called {preset_key}: PRESETS of this module names one")
        path = write_run(preset_key, scenario, simulate(scenario, load_facts()), ENGINE_VERSION)
        sys.stdout.write(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1e3:.0f} kB\n")
    facts = load_facts()
    evidence_text = json.dumps({"of": _evidence_digest(facts), **judge_rows(facts)}, sort_keys=True)
    (FOLDER / EVIDENCE).write_bytes(gzip.compress(evidence_text.encode(), mtime=0))


if __name__ == "__main__":
    main()
