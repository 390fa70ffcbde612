"""Files in one step, never through a link."""

import pytest
import safetensors.torch
import torch

from hsa_geo._files import replacing, write_text
from hsa_geo.errors import PathError


def test_a_failure_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "old é\n")

    def interrupted():
        with replacing(path) as part:
            part.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]
    assert path.read_bytes() == "old é\n".encode()


@pytest.mark.parametrize("there", [True, False])
def test_links_are_not_followed(tmp_path, there):
    victim, path = tmp_path / "victim", tmp_path / "a.txt"
    if there:
        victim.write_text("precious")
    for name in ("a.txt", ".a.txt.part"):
        (tmp_path / name).symlink_to(victim)
    write_text(path, "new")
    assert path.read_text() == "new"
    assert not path.is_symlink()
    assert victim.exists() == there
    assert not there or victim.read_text() == "precious"


def test_folders_are_errors(tmp_path):
    (tmp_path / "a.txt").mkdir()
    with pytest.raises(PathError, match=r"a\.txt' is a folder"):
        write_text(tmp_path / "a.txt", "new")
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]


def test_of_two_writers_the_last_one_wins(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with replacing(path) as first:
        first.write_text("half of the fi")
        with replacing(path) as second:
            second.write_text("the second")
        assert path.read_text() == "the second"
        first.write_text("the first")
    assert path.read_text() == "the first"
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize("letter", ["a", "é"])
def test_the_longest_names(tmp_path, letter):
    path = tmp_path / (letter * (255 // len(letter.encode())))
    write_text(path, "new")
    assert path.read_text() == "new"


def test_others_may_read_what_they_usually_may(tmp_path):
    (tmp_path / "usual").write_text("")
    with replacing(tmp_path / "a.safetensors") as part:
        safetensors.torch.save_file({"a": torch.zeros(2)}, part)
    assert (tmp_path / "a.safetensors").stat().st_mode == (tmp_path / "usual").stat().st_mode
