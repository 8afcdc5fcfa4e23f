"""Own controllers: only files of the operator's folder, named by what they say."""

import hashlib
from pathlib import Path

import pytest

from tests.engine.lifecycle.test_elastic import QUICK, RULED
from tests.engine.small import small
from twin.engine.simulate import simulate
from twin.lab import controllers
from twin.lab.runs import answer
from twin.policies.controllers import ControllerError, set_controller_loader
from twin.scenario import with_overrides

EXAMPLE = Path(__file__).parents[2] / "data" / "examples" / "one_by_one.py"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(controllers.VARIABLE, str(tmp_path))
    controllers.load_controller.cache_clear()
    set_controller_loader(controllers.load_controller)
    return tmp_path


def kept(folder, name, text):
    (folder / f"{name}.py").write_text(text)
    return hashlib.sha256(text.encode()).hexdigest()


def asked(digest):
    return small(RULED | {"elastic.controller": "own", "elastic.own.digest": digest})


def test_the_example_moves_instances(folder):
    digest = kept(folder, "one_by_one", EXAMPLE.read_text())
    assert controllers.controller_digests() == {"one_by_one": digest}
    run = simulate(asked(digest), QUICK)
    assert run.valid and run.summary["starts"] > 0


def test_the_example_scales_colocated_instances_too(folder):
    digest = kept(folder, "one_by_one", EXAMPLE.read_text())
    run = simulate(with_overrides(asked(digest), {"deployment.mode": "colocated"}), QUICK)
    assert run.valid and run.summary["starts"] > 0


def test_what_is_not_in_the_folder_is_refused(folder, tmp_path_factory):
    digest = kept(tmp_path_factory.mktemp("elsewhere"), "other", "def decide(seen): return {}")
    with pytest.raises(ControllerError, match="no file of TWIN_CONTROLLERS"):
        simulate(asked(digest), QUICK)


def test_a_changed_file_is_another_controller(folder):
    digest = kept(folder, "one", EXAMPLE.read_text())
    kept(folder, "one", EXAMPLE.read_text() + "# another")
    with pytest.raises(ControllerError, match="no file of TWIN_CONTROLLERS"):
        controllers.load_controller(digest)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("decide = 3", "no function decide"),
        ("raise OSError('no')", "cannot be read"),
        ("def decide(seen): return {}", "failed"),
        ("def decide(seen): return {'prefill': -1, 'decode': 1}", "none may be < 0"),
    ],
)
def test_one_that_is_none_is_told_in_a_sentence(folder, text, sentence):
    digest = kept(folder, "bad", text)
    with pytest.raises(ControllerError, match=sentence):
        simulate(asked(digest), QUICK)


def test_without_a_folder_there_is_none(monkeypatch):
    monkeypatch.delenv(controllers.VARIABLE, raising=False)
    assert controllers.controller_digests() == {}


def test_an_answer_that_is_not_kept_finds_the_folder_too(folder, monkeypatch):
    def nowhere(_digest):
        raise ControllerError("set TWIN_CONTROLLERS")

    set_controller_loader(nowhere)
    monkeypatch.setattr(answer, "load_facts", lambda: QUICK)
    digest = kept(folder, "one_by_one", EXAMPLE.read_text())
    told = answer.answer_scenario(asked(digest), None, lambda _share, _live: True, keep=False)
    assert told["valid"] and told["summary"]["starts"] > 0
