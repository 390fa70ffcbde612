"""HSA inside pretrained transformers: replace the attention of chosen layers, without training,
and train shortly to recover what that lost.

Needs the extra ``hf``.

Example:
    >>> import torch
    >>> from transformers import BertConfig, BertModel
    >>> config = BertConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
    ...     intermediate_size=64, vocab_size=50)
    >>> model = BertModel(config).eval()
    >>> model = replace_attention(model, layers=[1], hierarchy=Windows(4))
    >>> ids = torch.randint(5, 50, (2, 20))
    >>> model(ids).last_hidden_state.shape
    torch.Size([2, 20, 32])
    >>> restore_attention(model).config._attn_implementation
    'sdpa'
"""

from hsa_geo.hf.choose import Choice, Option, choose_layers, measure_layers
from hsa_geo.hf.given import given_trees, token_tree
from hsa_geo.hf.hierarchies import Clusters, Flat, Sentences, Squares, Windows, sentence_ends
from hsa_geo.hf.recovery import Recovery, recover
from hsa_geo.hf.replace import load_replaced, replace_attention, restore_attention

__all__ = [
    "Choice",
    "Clusters",
    "Flat",
    "Option",
    "Recovery",
    "Sentences",
    "Squares",
    "Windows",
    "choose_layers",
    "given_trees",
    "load_replaced",
    "measure_layers",
    "recover",
    "replace_attention",
    "restore_attention",
    "sentence_ends",
    "token_tree",
]
