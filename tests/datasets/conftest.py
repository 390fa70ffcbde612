"""What test files of datasets share."""

import json
import os
import shutil
import string
import subprocess

import pytest
import torch

WORDS = ["the", "cat", "play", "##ing", "##s", "sat", "日", "本", "語", "[UNK]"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def save_tokenizer(folder, max_length=32):
    """A tokenizer like BERT's: words, pieces and letters."""
    tokenizers = pytest.importorskip("tokenizers")
    letters = [*string.ascii_lowercase, *string.digits, *".,!?'-"]
    vocabulary = [*SPECIAL, *letters, *("##" + c for c in letters), *WORDS]
    ids = {token: i for i, token in enumerate(dict.fromkeys(vocabulary))}
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece(ids, unk_token="[UNK]"))
    made.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    made.add_special_tokens(SPECIAL)
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])],
    )
    made.enable_truncation(8)  # as models for sentences come; it must not count
    made.enable_padding(length=8)
    made.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": max_length}
    config |= dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return len(ids)


@pytest.fixture(scope="session")
def tiny_bert(tmp_path_factory):
    """Folder of a BERT with random weights: 3 layers, 16 numbers, 32 positions."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("tiny-bert")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=save_tokenizer(folder),
        hidden_size=16,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
        initializer_range=0.5,
    )
    transformers.BertModel(config, add_pooling_layer=False).save_pretrained(folder)
    return folder


@pytest.fixture
def tiny_disk(tmp_path):
    """A file system of 2 MB of its own, where the tests may make one."""
    if shutil.which("mount") is None or not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("only root can make a small file system")
    folder = tmp_path / "tiny"
    folder.mkdir()
    line = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    done = subprocess.run(line, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"no small file system here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True, capture_output=True)
