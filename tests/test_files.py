"""Files in one step, never through a link."""

import pytest
import safetensors.torch
import torch

from hsa_geo._files import replacing, write_text


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


def test_left_overs_are_replaced_and_folders_are_errors(tmp_path):
    (tmp_path / ".a.txt.part").write_text("of a run that was killed")
    write_text(tmp_path / "a.txt", "new")
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]
    (tmp_path / ".a.txt.part").mkdir()
    with pytest.raises(OSError, match=r"\.part"):
        write_text(tmp_path / "a.txt", "newer")
    assert (tmp_path / "a.txt").read_text() == "new"


def test_others_may_read_what_they_usually_may(tmp_path):
    (tmp_path / "usual").write_text("")
    with replacing(tmp_path / "a.safetensors") as part:
        safetensors.torch.save_file({"a": torch.zeros(2)}, part)
    assert (tmp_path / "a.safetensors").stat().st_mode == (tmp_path / "usual").stat().st_mode
