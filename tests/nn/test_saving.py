"""Models as files; hostile files are tested with the models that read them."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import pytest
import safetensors
import torch
from torch import nn

import hsa_geo
from hsa_geo.errors import FileFormatError, UnsupportedError
from hsa_geo.nn.saving import SCHEMA, load_model, save_model

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
    with pytest.raises(FileFormatError, match=r"it has besides 'bias': "):
        load_model(tmp_path, "Linear", lambda config: nn.Linear(3, 5, bias=False))
    with pytest.raises(
        FileFormatError, match=r"lacks '1.bias' \(and 1 more\) and has besides 'bias' "
    ):
        load_model(tmp_path, "Linear", lambda config: nn.ModuleList([nn.ReLU(), nn.Linear(3, 5)]))


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


# Files of other versions ####################################################

#: As the version before the first release wrote it.
OF_SCHEMA_1 = """{
  "schema": 1,
  "model": {"in_features": 3, "out_features": 5},
  "extra": {"classes": ["a", "b"]}
}"""


def test_files_of_schema_1_are_read(tmp_path):
    model = nn.Linear(3, 5)
    save_model(model, CONFIG, tmp_path)
    (tmp_path / "config.json").write_text(OF_SCHEMA_1)
    again, extra = load_model(tmp_path, "Linear", build)
    assert torch.equal(again.weight, model.weight)
    assert extra == {"classes": ["a", "b"]}


@pytest.mark.parametrize("schema", [0, SCHEMA + 1, "1", True, 1.0, None, -1])
def test_files_of_unknown_schemas_say_why_not(tmp_path, schema):
    save_model(nn.Linear(3, 5), CONFIG, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"schema": schema, "hsa_geo": "9.9"}))
    with pytest.raises(FileFormatError) as caught:
        load_model(tmp_path, "Linear", build)
    assert f"has schema {schema!r}, written by hsa_geo '9.9'" in str(caught.value)
    assert "which reads 1 to 2: install the version that wrote it" in str(caught.value)


def test_the_config_says_who_wrote_it(tmp_path):
    save_model(nn.Linear(3, 5), CONFIG, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert list(config) == ["schema", "hsa_geo", "class", "model", "extra"]
    assert (config["hsa_geo"], config["class"]) == (hsa_geo.__version__, "Linear")
    with pytest.raises(FileFormatError, match=r"saved Conv1d \(.*; it calls itself a 'Linear'\)"):
        load_model(tmp_path, "Conv1d", lambda config: nn.Conv1d(2, 3, 1))


# Files from anywhere ########################################################


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_nothing_is_read_outside_the_folder(tmp_path, name):
    folder, other = tmp_path / "model", tmp_path / "other"
    for place in (folder, other):
        save_model(nn.Linear(3, 5), CONFIG, place)
    (folder / name).unlink()
    (folder / name).symlink_to(other / name)
    with pytest.raises(FileFormatError, match=f"{name} is a link out of the folder"):
        load_model(folder, "Linear", build)
    # A folder that is itself a link, and links within it, are the owner's own business.
    (tmp_path / "link").symlink_to(other)
    (other / name).rename(other / "blob")
    (other / name).symlink_to("blob")
    load_model(tmp_path / "link", "Linear", build)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_pipes_and_devices_are_not_waited_for(tmp_path, name):
    save_model(nn.Linear(3, 5), CONFIG, tmp_path)
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    with pytest.raises(FileFormatError, match=f"{name} is no regular file"):
        load_model(tmp_path, "Linear", build)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_files_beyond_the_limit_are_not_read(tmp_path, name):
    save_model(nn.Linear(3, 5), CONFIG, tmp_path)
    os.truncate(tmp_path / name, 2**40)  # a terabyte that takes no room on the disk
    with pytest.raises(FileFormatError, match=f"{name} has 1099511627776 bytes, more than"):
        load_model(tmp_path, "Linear", build)
    save_model(nn.Linear(3, 5), CONFIG, tmp_path / "small")
    with pytest.raises(FileFormatError, match="more than the limit of 10"):
        load_model(tmp_path / "small", "Linear", build, max_bytes=10)


def header(content: bytes, size: int | None = None) -> bytes:
    return (len(content) if size is None else size).to_bytes(8, "little") + content


CLAIM = '{{"weight":{{"dtype":"{}","shape":{},"data_offsets":[0,{}]}}}}'


@pytest.mark.parametrize(
    "data",
    [
        header(b"{}", 2**62),
        header(b" " * 100, 99_999_999),
        header(CLAIM.format("F32", [10**9, 10**9], 4 * 10**18).encode()),
        header(CLAIM.format("F32", [2**33, 2**33], 0).encode()),  # overflows 64 bits
        header(CLAIM.format("F32", [-1, 4], 4).encode()),
        header(CLAIM.format("F32", [5, 3], 60).encode()),
        header(CLAIM.format("OBJECT", [1], 8).encode()) + bytes(8),
        header(CLAIM.format("F8_E4M3", [5, 3], 15).encode()) + bytes(15),
        header(b"[" * 10_000),
        header(b"{" + b'"a":{},' * 1000 + b'"b":1}'),
    ],
    ids=[
        *("long", "cut", "huge", "overflow", "negative", "short", "object", "float8"),
        *("deep", "foreign"),
    ],
)
def test_headers_that_lie(tmp_path, data):
    save_model(nn.Linear(3, 5), CONFIG, tmp_path)
    (tmp_path / "model.safetensors").write_bytes(data)
    with pytest.raises(FileFormatError, match="does not hold a saved Linear"):
        load_model(tmp_path, "Linear", build)


def test_shapes_are_compared_before_a_tensor_is_read(tmp_path, monkeypatch):
    save_model(nn.Linear(300, 5), CONFIG, tmp_path)
    read = []
    opened = safetensors.safe_open

    class Watched:
        def __init__(self, *args, **kwargs):
            self.file = opened(*args, **kwargs)

        def __enter__(self):
            self.file.__enter__()
            return self

        def __exit__(self, *error):
            return self.file.__exit__(*error)

        def __getattr__(self, name):
            read.append(name)
            return getattr(self.file, name)

    monkeypatch.setattr(safetensors, "safe_open", Watched)
    with pytest.raises(FileFormatError, match=r"weight has shape \[5, 300\], not \[5, 3\]"):
        load_model(tmp_path, "Linear", build)
    assert set(read) == {"keys", "get_slice"}


class Evil:
    def __reduce__(self):
        return os.system, ("touch pickle-was-run",)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
@pytest.mark.parametrize("kind", ["pickle", "torch"])
def test_no_pickle_runs(tmp_path, monkeypatch, name, kind):
    monkeypatch.chdir(tmp_path)
    save_model(nn.Linear(3, 5), CONFIG, "model")
    if kind == "pickle":
        Path("model", name).write_bytes(pickle.dumps(Evil()))
    else:
        torch.save(Evil(), Path("model", name))
    with pytest.raises(FileFormatError, match="does not hold a saved Linear"):
        load_model("model", "Linear", build)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
