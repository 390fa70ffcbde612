from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hsa_geo.cli import json_trees, run
from hsa_geo.cli.json_trees import MAX_DEPTH, nested_tree, read_json
from hsa_geo.errors import BuilderError, LimitError

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(VALUES, st.sampled_from([None, 2]))
def test_deep_json_is_read_as_python_reads_any(value, indent):
    text = json.dumps(value, indent=indent)
    assert json_trees._read_deep(text, "a.json") == json.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "[", "[1", "[1,", "[1,]", "[,1]", "[1 2]", "[1}", "{", '{"a"', '{"a":'),
        *('{"a":1', '{"a":1,', '{"a":1,}', "{1:2}", '{"a" 1}', "{a:1}", "]", "1 2", "[] []"),
        *("tru", "[01]", '"a', '["\n"]'),
    ],
)
def test_deep_json_is_refused_as_python_refuses_any(text):
    for read in (json.loads, lambda text: json_trees._read_deep(text, "a.json")):
        with pytest.raises(json.JSONDecodeError):
            read(text)


def deep(levels):
    return b'[{"a": ' * (levels // 2) + b"1" + b"}, 2]" * (levels // 2)


def test_5000_levels(tmp_path, capsys):
    path = tmp_path / "deep.json"
    path.write_bytes(deep(5000))
    assert run(["inspect", str(path), "--nodes", "3"]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    assert "2501 leaves, 7501 nodes, depth 5000" in told.out
    tree = nested_tree(read_json(b"[" * 5000 + b"1, 2" + b"]" * 5000, "a.json"))
    assert (tree.num_leaves, tree.depth, tree.x.tolist()) == (2, 5000, [[1.0], [2.0]])


def test_deeper_than_the_limit():
    with pytest.raises(LimitError, match=f"'a.json' is nested deeper than {MAX_DEPTH} levels: cut"):
        read_json(deep(MAX_DEPTH + 2), "a.json")
    assert read_json(deep(MAX_DEPTH), "a.json")
    with pytest.raises(BuilderError, match="is no JSON"):
        read_json(deep(5000) + b"]", "a.json")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-32"])
def test_encodings(encoding):
    shallow, nested = '["ü"]', "[" * 3000 + '"ü"' + "]" * 3000
    assert read_json(shallow.encode(encoding), "a.json") == ["ü"]
    found = read_json(nested.encode(encoding), "a.json")
    for _ in range(2999):
        found = found[0]
    assert found == ["ü"]


@pytest.mark.parametrize("number", ["1" + "0" * 400, "1e300", "1e400", "NaN", "-Infinity"])
def test_numbers_that_float32_lacks_are_leaves_without_features(number):
    tree = nested_tree(read_json(f"[{number}, 2]".encode(), "a.json"))
    assert tree.num_leaves == 2
    assert "x" not in tree


def test_nodes_without_a_name_show_what_they_are(tmp_path, capsys):
    path = tmp_path / "a.json"
    path.write_text('{"title": "Hi", "parts": [{"a": 1}, [2, null]]}')
    assert run(["inspect", str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[2:10] == [
        "SET of 2, 4 leaves",
        '  title: "Hi"',
        "  parts: SEQUENCE of 2, 3 leaves",
        "    at 0: SET of 1, 1 leaf",
        "      a: 1",
        "    at 1: SEQUENCE of 2, 2 leaves",
        "      2 at 0",
        "      null at 1",
    ]


@pytest.mark.parametrize("depth", [1, 3000])
def test_integers_of_thousands_of_digits(depth):
    data = b"[" * depth + b"7" * 5000 + b"]" * depth
    with pytest.raises(BuilderError) as told:
        read_json(data, "a.json")
    assert str(told.value) == (
        "'a.json' holds an integer of more than 4300 digits, which is not read: shorten it, or "
        "write it as a string."
    )
