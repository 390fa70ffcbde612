"""The comparison of structures, on a few trees."""

from __future__ import annotations

import json
from pathlib import Path

import listops
import pytest
from comparison import Job, Record, best_rates
from listops_runs import MODELS, Settings, build, load, run

TINY = ["--quiet", "--workers", "1", "--epochs", "1", "--channels", "8", "--layers", "1"]


def record(variant: str, validation: float) -> Record:
    return Record(variant, 0, 0, [0], [0], [0], validation)


def test_the_best_rate_by_mean_validation():
    some = [record("hsa@0.1", 0.2), record("hsa@1", 0.5), record("bag", 0.1), record("hsa@2", 0.7)]
    some += [record("hsa@0.1", 0.3), record("hsa@1", 0.5), record("hsa@2", 0.2)]
    assert best_rates(some) == {"hsa": "hsa@1", "bag": "bag"}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("data")


@pytest.mark.parametrize("task", ["records", "listops"])
def test_models_are_of_one_size(root, task):
    settings = Settings(task, (40, 20, 20))
    dataset = load(settings, root)
    sizes = {}
    for variant, (_, options) in MODELS.items():
        if options is not None:
            model = build(options, dataset, settings)
            assert model(dataset[0], dataset[0].get("question_node")).shape == (1, 10)
            sizes[variant] = sum(p.numel() for p in model.parameters())
    for told in ("flat_told", "deep_set", "none"):
        assert sizes[told] == pytest.approx(sizes["hsa_told"], rel=0.02)
    assert sizes["flat"] == pytest.approx(sizes["hsa"], rel=0.02)


@pytest.mark.parametrize("variant", ["flat_told@0.001", "bag"])
def test_a_run(root, variant):
    settings = Settings("listops", (40, 20, 20), channels=16, layers=1, epochs=1)
    found = run(Job(variant), root, settings)
    assert len(found.items) == len(found.predicted) == len(found.target) == 20
    assert sorted(set(found.target)) == list(range(10))


def test_one_command(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(listops.__file__).parent))
    monkeypatch.setenv("COLUMNS", "200")
    command = [*TINY, "--root", str(tmp_path), "--out", str(tmp_path / "out")]
    command += ["--sizes", "40", "20", "20", "--seeds", "2", "--rates", "1e-3"]
    command += ["--variants", "none", "bag", "--data", '{"keys": 1}']
    listops.main(command)
    out = capsys.readouterr().out
    assert "bag of symbols" in out
    assert "no attention" in out
    (report,) = (tmp_path / "out").glob("*/report.json")
    content = json.loads(report.read_text())
    assert content["settings"]["data"] == {"keys": 1}
    assert content["rates"]["none"] == "none@0.001"
    runs = sorted(path.name for path in report.parent.glob("*-seed*.json"))
    assert runs == ["bag-fold0-seed0.json", *[f"none@0.001-fold0-seed{s}.json" for s in (0, 1)]]
    listops.main(command)  # nothing is left to do
    assert capsys.readouterr().out.splitlines()[:4] == out.splitlines()[:4]
