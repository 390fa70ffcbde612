"""Building in parts: what is done is not done again."""

import pytest

from hsa_geo.data import SignalTree
from hsa_geo.datasets.parts import build_in_parts


def run(folder, items=range(7), mark="v1", fail_at=None, **kwargs):
    built = []

    def build(chunk):
        trees = []
        for k in chunk:
            if k == fail_at:
                raise KeyboardInterrupt
            built.append(k)
            if k != 3:  # one that cannot be built
                trees.append(SignalTree.from_parents([k + 1] * (k + 1) + [-1]))
        return trees, {"last": k}

    parts = build_in_parts(items, build, folder, mark=mark, size=2, **kwargs)
    return built, [[t.num_leaves for t in trees] for trees, _ in parts], [e for _, e in parts]


def test_all(tmp_path):
    built, sizes, extra = run(tmp_path)
    assert built == list(range(7))
    assert sizes == [[1, 2], [3], [5, 6], [7]]
    assert extra == [{"last": k} for k in (1, 3, 5, 6)]
    again = run(tmp_path)
    assert again == ([], sizes, extra)
    assert run(tmp_path, mark="v2")[0] == list(range(7))


def test_resume_and_damage(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, fail_at=5)
    built, sizes, _ = run(tmp_path)
    assert built == [4, 5, 6]
    assert sizes == [[1, 2], [3], [5, 6], [7]]
    (tmp_path / "v1-00001.safetensors").write_bytes(b"half")
    assert run(tmp_path)[0] == [2, 3]


def test_nothing_to_build(tmp_path):
    assert run(tmp_path, items=[]) == ([], [], [])
    assert run(tmp_path, items=[3])[1] == [[]]  # a part without a tree
    assert run(tmp_path, items=[3])[0] == []


def test_progress_is_shown_on_stderr(tmp_path, capsys):
    run(tmp_path, log=True, description="Trees")
    out, err = capsys.readouterr()
    assert out == ""
    assert "Trees: 7/7" in err
