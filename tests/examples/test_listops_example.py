"""The comparison of structures, on a few trees."""

from __future__ import annotations

import json
from pathlib import Path

import listops
import pytest
from comparison import Job, Record, best_rates
from listops_runs import MODELS, STRENGTHS, Settings, build, load, num_symbols, run

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
    assert listops.main(command) == 0
    out = capsys.readouterr().out
    assert "bag of symbols" in out
    assert "no attention" in out
    (report,) = (tmp_path / "out").glob("*/report.json")
    content = json.loads(report.read_text())
    assert content["settings"]["data"] == {"keys": 1}
    assert content["rates"]["none"] == "none@0.001"
    assert content["title"] == "records: 40 trees to train on, 20 to test; keys=1"
    assert (report.parent / "table.md").read_text().startswith(content["title"])
    runs = sorted(path.name for path in report.parent.glob("*-seed*.json"))
    assert runs == ["bag-fold0-seed0.json", *[f"none@0.001-fold0-seed{s}.json" for s in (0, 1)]]
    listops.main(command)  # nothing is left to do
    assert capsys.readouterr().out.splitlines()[:4] == out.splitlines()[:4]


@pytest.mark.parametrize("task", ["records", "listops"])
def test_every_symbol_is_counted(root, task):
    dataset = load(Settings(task, (40, 20, 20)), root)
    assert max(int(tree.symbol_x.max()) for tree in dataset) < num_symbols(dataset)


def test_records_of_the_bag_depend_on_its_grid(monkeypatch):
    assert (min(STRENGTHS), max(STRENGTHS)) == (0.003, 300)
    before = [listops.recipe_of(Job(name)) for name in ("bag", "hsa@0.001")]
    monkeypatch.setattr(listops, "STRENGTHS", (1.0,))
    after = [listops.recipe_of(Job(name)) for name in ("bag", "hsa@0.001")]
    assert before[0] != after[0]
    assert before[1] == after[1]


def test_all_tasks_one_after_the_other(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(listops.__file__).parent))
    command = [*TINY, "--root", str(tmp_path), "--out", str(tmp_path / "out"), "--task", "all"]
    command += ["--sizes", "40", "20", "20", "--variants", "bag"]
    assert listops.main(command) == 0
    names = [path.name.partition("-")[0] for path in sorted((tmp_path / "out").iterdir())]
    assert names == ["listops", "records"]
    said = " ".join(capsys.readouterr().out.split())
    assert "max_depth=3, max_leaves=40" in said


@pytest.mark.parametrize(
    "command",
    [["--seeds", "0"], ["--workers", "-1"], ["--tries", "0"], ["--rates", "0"]],
)
def test_numbers_out_of_range_are_refused(command, capsys):
    with pytest.raises(SystemExit) as error:
        listops.main(command)
    assert error.value.code == 2
    assert command[0] in capsys.readouterr().err


def test_options_belong_to_one_dataset(capsys):
    with pytest.raises(SystemExit) as error:
        listops.main(["--task", "all", "--data", '{"keys": 1}'])
    assert error.value.code == 2
    assert "name its --task" in capsys.readouterr().err


def test_expected_errors_are_one_line(tmp_path, capsys):
    command = ["--root", str(tmp_path), "--out", str(tmp_path), "--data", '{"rows": 3}']
    assert listops.main(command) == 1
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith("error: option 'rows' is unknown")
    assert err.count("\n") == 1
