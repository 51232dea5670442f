"""The families of folders that are read and written: one table each, used in both directions.

names.py turns tensor names by these tables, hf.py the keys of config.json; keys.py has what a table cannot say of
those. What a family computes otherwise than BERT is in model/config.py (FAMILY_RULES).
"""

from collections.abc import Collection, Mapping, Set
from dataclasses import replace
from typing import Any

from ..model.heads import TOKEN_HEADS
from .keys import (
    read_albert,
    read_distilbert,
    read_jina,
    read_modernbert,
    read_roberta,
    write_albert,
    write_distilbert,
    write_jina,
    write_modernbert,
    write_positions,
)
from .names import Family

# Modules of a layer: ours, and those of each family.
_LAYER = """
ours                      bert                       albert                distilbert        modernbert jina
attention.query           attention.self.query       attention.query       attention.q_lin   attn.query self_attn.q_proj
attention.key             attention.self.key         attention.key         attention.k_lin   attn.key   self_attn.k_proj
attention.value           attention.self.value       attention.value       attention.v_lin   attn.value self_attn.v_proj
attention.output          attention.output.dense     attention.dense       attention.out_lin attn.Wo    self_attn.o_proj
attention_norm            attention.output.LayerNorm attention.LayerNorm   sa_layer_norm     attn_norm  post_attention_layernorm
feed_forward.intermediate intermediate.dense         ffn                   ffn.lin1          mlp.Wi     mlp.fc1
feed_forward.output       output.dense               ffn_output            ffn.lin2          mlp.Wo     mlp.fc2
output_norm               output.LayerNorm           full_layer_layer_norm output_layer_norm mlp_norm   post_mlp_layernorm
"""  # noqa: E501
_ROWS = [row.split() for row in _LAYER.split("\n")[1:-1]]
LAYERS = {name: {row[0]: row[i] for row in _ROWS[1:]} for i, name in enumerate(_ROWS[0])}


def _modules(prefix: str, layer: str, inside: Mapping[str, str], pooler: str, mlm: tuple[str, ...]) -> dict[str, str]:
    """Our modules: those of Hugging Face.

    inside: those of a layer. mlm: dense, norm, decoder, and the module with the head's bias.
    """
    return {
        "encoder.embeddings.word": f"{prefix}.embeddings.word_embeddings",
        "encoder.embeddings.position": f"{prefix}.embeddings.position_embeddings",
        "encoder.embeddings.token_type": f"{prefix}.embeddings.token_type_embeddings",
        "encoder.embeddings.norm": f"{prefix}.embeddings.LayerNorm",
        "encoder.embeddings.projection": f"{prefix}.encoder.embedding_hidden_mapping_in",
        **{f"encoder.layers.{{}}.{name}": f"{layer}.{hf_name}" for name, hf_name in inside.items()},
        "encoder.pooler": pooler,
        **dict(zip(("heads.mlm.dense", "heads.mlm.norm", "heads.mlm.decoder", "heads.mlm"), mlm, strict=True)),
        "heads.nsp": "cls.seq_relationship",
        "heads.sop": "sop_classifier.classifier",
        "heads.classifier": "classifier",
        "heads.choice": "classifier",  # the class of the folder says which of the three it is
        "heads.tagger": "classifier",
        "heads.span": "qa_outputs",
        # bertworks alone has these
        "encoder.final_norm": f"{prefix}.encoder.final_norm",
        "encoder.layers.{}.recurrent": f"{layer}.recurrent",
        "top.weighting": "top.weighting",
        "top.bilstm.{}": "top.bilstm.{}",
    }


def _classes(name: str) -> dict[str, set[str]]:
    """The classes that every family has."""
    return {
        f"{name}ForMaskedLM": {"mlm"},
        f"{name}ForSequenceClassification": {"classifier", "pooler"},
        f"{name}ForMultipleChoice": {"choice", "pooler"},
        f"{name}ForTokenClassification": {"tagger"},
        f"{name}ForQuestionAnswering": {"span"},
        f"{name}Model": set(),  # perhaps without the pooler
    }


def _with_own_pooler(family: Family) -> Family:
    """The same for a head of sequences with a pooler of its own, which does not read the encoder's."""
    return replace(
        family,
        modules={**family.modules, "encoder.pooler": "classifier.dense", "heads.classifier": "classifier.out_proj"},
        unread="roberta.pooler.",
        pooler_of={"classifier"},
    )


# ---- the tables

_CLS = "cls.predictions"
BERT = Family(
    prefix="bert",
    modules=_modules(
        "bert",
        "bert.encoder.layer.{}",
        LAYERS["bert"],
        pooler="bert.pooler.dense",
        mlm=(f"{_CLS}.transform.dense", f"{_CLS}.transform.LayerNorm", f"{_CLS}.decoder", _CLS),
    ),
    classes={
        "BertForPreTraining": {"mlm", "nsp", "pooler"},
        "BertLMHeadModel": {"mlm"},
        "BertForNextSentencePrediction": {"nsp", "pooler"},
        **_classes("Bert"),
    },
    causal="BertLMHeadModel",
    write=write_positions,
)
ROBERTA = Family(
    prefix="roberta",
    modules=_modules(
        "roberta",
        "roberta.encoder.layer.{}",
        LAYERS["bert"],
        pooler="roberta.pooler.dense",
        mlm=("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", "lm_head"),
    ),
    classes={"RobertaForCausalLM": {"mlm"}, **_classes("Roberta")},
    causal="RobertaForCausalLM",
    aliases={"xlm-roberta": "XLMRoberta", "camembert": "Camembert", "data2vec-text": "Data2VecText"},
    older={r"^data2vec_text\.": "roberta."},
    defaults={"vocab_size": 50265, "pad_token_id": 1},
    read=read_roberta,
    write=write_positions,
)
ROBERTA_CLASSIFIER = _with_own_pooler(ROBERTA)
ALBERT = Family(
    prefix="albert",
    modules=_modules(
        "albert",
        "albert.encoder.albert_layer_groups.{}.albert_layers.0",
        LAYERS["albert"],
        pooler="albert.pooler",
        mlm=("predictions.dense", "predictions.LayerNorm", "predictions.decoder", "predictions"),
    ),
    classes={"AlbertForPreTraining": {"mlm", "sop", "pooler"}, **_classes("Albert")},
    keys={"classifier_dropout": "classifier_dropout_prob"},
    defaults={
        "vocab_size": 30000,
        "hidden_size": 4096,
        "num_attention_heads": 64,
        "intermediate_size": 16384,
        "hidden_act": "gelu_new",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "classifier_dropout": 0.1,
    },
    read=read_albert,
    write=write_albert,
)
DISTILBERT = Family(
    prefix="distilbert",
    modules=_modules(
        "distilbert",
        "distilbert.transformer.layer.{}",
        LAYERS["distilbert"],
        pooler="pre_classifier",  # its heads have it there
        mlm=("vocab_transform", "vocab_layer_norm", "vocab_projector", "vocab_projector"),
    ),
    classes=_classes("DistilBert"),
    pooler_of={"classifier", "choice"},
    keys={
        "hidden_size": "dim",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "intermediate_size": "hidden_dim",
        "hidden_act": "activation",
        "hidden_dropout_prob": "dropout",
        "attention_probs_dropout_prob": "attention_dropout",
        "classifier_dropout": "seq_classif_dropout",
    },
    fixed={"type_vocab_size": 0, "layer_norm_eps": 1e-12},
    defaults={"num_hidden_layers": 6, "classifier_dropout": 0.2},
    read=read_distilbert,
    write=write_distilbert,
)
_JINA = "JinaEmbeddingsV3"
JINA = Family(  # BERT and RoBERTa with rotary positions, in transformers from 5.4 on
    prefix="roberta",
    modules=_modules(
        "roberta",
        "roberta.layers.{}",
        LAYERS["jina"],
        pooler="roberta.pooler.dense",
        mlm=("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", "lm_head"),
    ),
    classes={name: parts for name, parts in _classes(_JINA).items() if not name.endswith("MultipleChoice")},
    beside=frozenset({"nsp", "sop"}),
    older={  # what transformers itself writes
        r"(^|\.)emb_ln\.": r"\1embeddings.LayerNorm.",
        r"(^|\.)encoder\.layers\.": r"\1layers.",
        r"\.mixer\.out_proj\.": ".self_attn.o_proj.",
        r"\.norm1\.": ".post_attention_layernorm.",
        r"\.norm2\.": ".post_mlp_layernorm.",
    },
    fused={"mixer.Wqkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")},
    defaults={
        "vocab_size": 250002,
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
        "max_position_embeddings": 8194,
        "type_vocab_size": 1,
        "layer_norm_eps": 1e-5,
        "pad_token_id": 1,
    },
    read=read_jina,
    write=write_jina,
)
JINA_CLASSIFIER = _with_own_pooler(JINA)
ROTARY = "jina_embeddings_v3"  # the model type of transformers for rotary BERT and RoBERTa
MODERNBERT = Family(
    prefix="model",
    modules={
        **_modules(
            "model",
            "model.layers.{}",
            LAYERS["modernbert"],
            "pooler",
            ("head.dense", "head.norm", "decoder", "decoder"),
        ),
        "encoder.embeddings.word": "model.embeddings.tok_embeddings",
        "encoder.embeddings.norm": "model.embeddings.norm",
        "encoder.final_norm": "model.final_norm",
        "encoder.pooler.dense": "pooler.dense",
        "encoder.pooler.norm": "pooler.norm",
    },
    classes=_classes("ModernBert"),
    fused={"attn.Wqkv": ("attn.query", "attn.key", "attn.value")},
    write_fused=True,
    keys={
        "hidden_act": "hidden_activation",
        "hidden_dropout_prob": "embedding_dropout",
        "attention_probs_dropout_prob": "attention_dropout",
        "layer_norm_eps": "norm_eps",
    },
    fixed={"type_vocab_size": 0, "position_embedding_type": "rotary", "norm": "pre", "feed_forward": "geglu"},
    defaults={
        "vocab_size": 50368,
        "intermediate_size": 1152,
        "num_hidden_layers": 22,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "classifier_dropout": 0.0,
        "max_position_embeddings": 8192,
        "layer_norm_eps": 1e-5,
        "pad_token_id": 50283,
    },
    read=read_modernbert,
    write=write_modernbert,
)
MODERNBERT_TASK = replace(  # its other heads begin with a layer of the same name as that of the masked-LM head
    MODERNBERT,
    modules={
        **MODERNBERT.modules,
        **{f"heads.mlm{part}": f"mlm{part}" for part in (".dense", ".norm", ".decoder", "")},
        **{f"encoder.pooler.{part}": f"head.{part}" for part in ("dense", "norm")},
        **{f"heads.{name}.transform.{part}": f"head.{part}" for name in TOKEN_HEADS for part in ("dense", "norm")},
        "heads.span": "classifier",
    },
    pooler_of={"classifier", "choice"},
)
FAMILIES = {
    "bert": BERT,
    "roberta": ROBERTA,
    "albert": ALBERT,
    "distilbert": DISTILBERT,
    "modernbert": MODERNBERT,
    ROTARY: JINA,
}
_WITH_HEAD: dict[str, tuple[Set[str], str, Family]] = {  # heads with names of their own, and how those begin
    "roberta": ({"classifier"}, "classifier.out_proj.", ROBERTA_CLASSIFIER),
    ROTARY: ({"classifier"}, "classifier.out_proj.", JINA_CLASSIFIER),
    "modernbert": ({"classifier", "choice", *TOKEN_HEADS}, "classifier.", MODERNBERT_TASK),
}


def family_of(name: str, parts: Set[str]) -> Family:
    """The table of a model type, for a model with these parts: some types name some heads differently."""
    heads, _, family = _WITH_HEAD.get(name, (set(), "", FAMILIES[name]))
    return family if heads & parts else FAMILIES[name]


def _kind(name: str, settings: Mapping[str, Any]) -> str:
    """The model type whose names a folder has; `name` is the family of its encoder."""
    return ROTARY if settings.get("model_type") == ROTARY else name


def family_in(name: str, tensors: Collection[str], settings: Mapping[str, Any]) -> Family:
    """The table of a folder with these tensors and this config.json; `name` is the family of its encoder."""
    kind = _kind(name, settings)
    heads, begin, family = _WITH_HEAD.get(kind, (set(), "", FAMILIES[kind]))
    declared = (family.classes.get(cls, set()) for cls in settings.get("architectures") or ())
    named = any(tensor.startswith(begin) for tensor in tensors) or any(heads & parts for parts in declared)
    return family if named else FAMILIES[kind]
