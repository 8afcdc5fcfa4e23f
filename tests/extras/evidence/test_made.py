"""First errors: asked for once, each of a commit."""

import subprocess

import pytest

from twin.extras.evidence import made
from twin.lab.evidence.rows import EvidenceError, Row, load_published
from twin.lab.library import load_facts

IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@b")


def test_a_first_error_is_never_asked_for_twice_and_belongs_to_a_commit(tmp_path, monkeypatch):
    row = next(r for r in load_published() if r.id == "cm384-kv-bytes")
    unseen = Row(**{**vars(row), "kind": "unseen"})
    monkeypatch.setattr(made, "load_published", lambda: [unseen])
    monkeypatch.setattr(made, "committed", lambda root: "c" * 40)
    path = tmp_path / "first.toml"
    assert [new["id"] for new in made.keep_first(load_facts(), path)] == [row.id]
    before = path.read_text("utf-8")
    assert made.keep_first(load_facts(), path) == []
    assert path.read_text("utf-8") == before


def test_a_first_error_needs_a_clone_without_changes(tmp_path):
    with pytest.raises(EvidenceError, match="git clone"):
        made.committed(tmp_path)
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "empty"]):
        subprocess.run(["git", "-C", str(tmp_path), *IDENTITY, *words], check=True)
    assert len(made.committed(tmp_path)) == 40
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.toml").write_text("", "utf-8")
    with pytest.raises(EvidenceError, match="commit the changes"):
        made.committed(tmp_path)
