"""Models as files; hostile files are tested with the models that read them."""

from __future__ import annotations

import json
import pickle

import pytest
import torch
from torch import nn

from hsa_geo.errors import FileFormatError, UnsupportedError
from hsa_geo.nn.saving import load_model, save_model

CONFIG = {"in_features": 3, "out_features": 5}


def build(config):
    return nn.Linear(**config)


def test_saved_and_loaded(tmp_path):
    model = nn.Linear(3, 5).double()
    save_model(model, CONFIG, tmp_path / "a" / "b", {"note": "ü"})
    again, extra = load_model(tmp_path / "a" / "b", "Linear", build)
    assert extra == {"note": "ü"}
    assert not again.training
    x = torch.randn(7, 3, dtype=torch.float64)
    assert torch.equal(again(x), model(x))
    assert isinstance(again.weight, nn.Parameter)
    assert again.weight.requires_grad


def test_memory_is_aligned(tmp_path):
    """Tensors in a file lie anywhere; kernels round otherwise where memory is not aligned."""
    model = nn.Sequential(nn.Linear(1, 1), nn.Linear(64, 64))
    save_model(model, {}, tmp_path)
    again, _ = load_model(
        tmp_path, "Sequential", lambda config: nn.Sequential(nn.Linear(1, 1), nn.Linear(64, 64))
    )
    assert all(p.data_ptr() % 16 == 0 for p in again.parameters())


def test_views_are_saved(tmp_path):
    model = nn.Linear(3, 5)
    model.weight = nn.Parameter(torch.randn(3, 5).t())
    save_model(model, CONFIG, tmp_path)
    again, _ = load_model(tmp_path, "Linear", build)
    assert torch.equal(again.weight, model.weight)


def test_nothing_is_allocated_for_claims(tmp_path):
    save_model(nn.Linear(3, 5), CONFIG, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["model"]["in_features"] = 10**11  # two terabytes
    (tmp_path / "config.json").write_text(json.dumps(config))
    built = []

    def watched(config):
        built.append(nn.Linear(**config).weight.device.type)
        return nn.Linear(**config)

    with pytest.raises(
        FileFormatError, match=r"weight has shape \[5, 3\], not \[5, 100000000000\]"
    ):
        load_model(tmp_path, "Linear", watched)
    assert built == ["meta"]


def test_what_is_no_json_leaves_the_old_files(tmp_path):
    save_model(nn.Linear(3, 5), CONFIG, tmp_path)
    before = (tmp_path / "model.safetensors").read_bytes()
    with pytest.raises(TypeError):
        save_model(nn.Linear(3, 5), {"set": {1}}, tmp_path)
    assert (tmp_path / "model.safetensors").read_bytes() == before


def test_pickles_are_not_read(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"schema": 1, "model": CONFIG, "extra": {}}))
    (tmp_path / "model.safetensors").write_bytes(pickle.dumps(nn.Linear(3, 5).state_dict()))
    with pytest.raises(FileFormatError, match="does not hold a saved Linear"):
        load_model(tmp_path, "Linear", build)


def test_errors_of_the_builder_are_told(tmp_path):
    save_model(nn.Linear(3, 5), CONFIG, tmp_path)

    def refuse(config):
        raise FileFormatError("give an encoder")

    with pytest.raises(FileFormatError, match=r"^give an encoder$"):
        load_model(tmp_path, "Linear", refuse)
    with pytest.raises(FileFormatError, match=r"keys .* are in one of both"):
        load_model(tmp_path, "Linear", lambda config: nn.Linear(3, 5, bias=False))


def test_shared_memory_is_saved_and_sparse_is_refused(tmp_path):
    def made(config):
        model = nn.Linear(3, 3)
        model.register_buffer("first", model.weight.detach()[:1])
        return model

    save_model(made(None), {}, tmp_path)
    again, _ = load_model(tmp_path, "Linear", made)
    assert torch.equal(again.first, again.weight[:1])
    sparse = nn.Linear(3, 3)
    sparse.register_buffer("eye", torch.eye(3).to_sparse())
    with pytest.raises(UnsupportedError, match=r"'eye' is torch\.sparse_coo"):
        save_model(sparse, {}, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]


def test_links_are_not_followed(tmp_path):
    victim, folder = tmp_path / "victim", tmp_path / "model"
    victim.write_text("precious")
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        for link in (name, f"{name}.part", f".{name}.part"):
            (folder / link).symlink_to(victim)
    save_model(nn.Linear(3, 5), CONFIG, folder)
    assert victim.read_text() == "precious"
