"""The families of folders that are read and written: one table each, used in both directions.

names.py turns tensor names by these tables, hf.py the keys of config.json. What a family computes otherwise than BERT
is in model/config.py (FAMILY_RULES).
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from ..files import shorten
from ..model.config import ModelConfig
from .names import Family, Settings

_BERT_LAYER = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "attention_output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "intermediate": "intermediate.dense",
    "output": "output.dense",
    "output_norm": "output.LayerNorm",
}
_ALBERT_LAYER = {
    "query": "attention.query",
    "key": "attention.key",
    "value": "attention.value",
    "attention_output": "attention.dense",
    "attention_norm": "attention.LayerNorm",
    "intermediate": "ffn",
    "output": "ffn_output",
    "output_norm": "full_layer_layer_norm",
}
_DISTILBERT_LAYER = {
    "query": "attention.q_lin",
    "key": "attention.k_lin",
    "value": "attention.v_lin",
    "attention_output": "attention.out_lin",
    "attention_norm": "sa_layer_norm",
    "intermediate": "ffn.lin1",
    "output": "ffn.lin2",
    "output_norm": "output_layer_norm",
}
_JINA_LAYER = {
    "query": "self_attn.q_proj",
    "key": "self_attn.k_proj",
    "value": "self_attn.v_proj",
    "attention_output": "self_attn.o_proj",
    "attention_norm": "post_attention_layernorm",
    "intermediate": "mlp.fc1",
    "output": "mlp.fc2",
    "output_norm": "post_mlp_layernorm",
}


def _modules(prefix: str, layer: str, inside: Mapping[str, str], pooler: str, mlm: tuple[str, ...]) -> dict[str, str]:
    """Our modules: theirs. inside: those of a layer. mlm: dense, norm, decoder, and the module with the head's bias."""
    return {
        "encoder.embeddings.word": f"{prefix}.embeddings.word_embeddings",
        "encoder.embeddings.position": f"{prefix}.embeddings.position_embeddings",
        "encoder.embeddings.token_type": f"{prefix}.embeddings.token_type_embeddings",
        "encoder.embeddings.norm": f"{prefix}.embeddings.LayerNorm",
        "encoder.embeddings.projection": f"{prefix}.encoder.embedding_hidden_mapping_in",
        **{f"encoder.layers.{{}}.{ours}": f"{layer}.{theirs}" for ours, theirs in inside.items()},
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
        f"{name}Model": set(),  # it may have been made without the pooler
    }


# ---- what fields and keys do not say one to one


def _write_positions(_: ModelConfig) -> dict[str, Any]:
    return {"position_embedding_type": "absolute"}


def _read_roberta(settings: Settings) -> dict[str, Any]:
    pad = settings.get("pad_token_id", 1)
    return {"position_offset": pad + 1 if isinstance(pad, int) else 0}  # else its own field refuses it


def _read_albert(settings: Settings) -> dict[str, Any]:
    groups, inner = settings.get("num_hidden_groups", 1), settings.get("inner_group_num", 1)
    layers = settings.get("num_hidden_layers", 12)
    if inner != 1 or groups not in (1, layers):
        raise ValueError(
            f"num_hidden_groups = {shorten(groups)}, inner_group_num = {shorten(inner)}; expected 1 group "
            f"(all layers share) or {shorten(layers)} (none do), and 1 layer in each"
        )
    return {"embedding_size": settings.get("embedding_size", 128), "shared_layers": "all" if groups == 1 else "none"}


def _write_albert(config: ModelConfig) -> dict[str, Any]:
    groups = 1 if config.shared_layers == "all" else config.num_hidden_layers
    return {
        "classifier_dropout_prob": config.head_dropout,
        "embedding_size": config.embedding_width,
        "num_hidden_groups": groups,
        "inner_group_num": 1,
        **_write_positions(config),
    }


def _read_distilbert(settings: Settings) -> dict[str, Any]:
    return {"position_embedding_type": "sinusoidal"} if settings.get("sinusoidal_pos_embds") else {}


def _write_distilbert(config: ModelConfig) -> dict[str, Any]:
    sinusoidal = config.position_embedding_type == "sinusoidal"
    return {"seq_classif_dropout": config.head_dropout, "qa_dropout": 0.0, "sinusoidal_pos_embds": sinusoidal}


def _read_jina(settings: Settings) -> dict[str, Any]:
    """Its formula is RoBERTa's, heads and pooler too, with rotary positions in place of a table."""
    rope = settings.get("rope_scaling") or settings.get("rope_parameters") or {}
    if not isinstance(rope, dict) or rope.keys() - {"rope_type", "type", "rope_theta"}:
        raise ValueError(f"rope_parameters = {shorten(rope)}; expected rope_type and rope_theta alone")
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind != "default":
        raise ValueError(f"rope_type = {shorten(kind)}; expected default: no scaling of positions is computed here")
    if "head_dim" in settings:
        raise ValueError(f"head_dim = {shorten(settings['head_dim'])}; expected no such key: heads share hidden_size")
    theta = rope.get("rope_theta", settings.get("rope_theta", 20000.0))
    return {"family": "roberta", "position_embedding_type": "rotary", "rope_theta": theta}


def _write_jina(config: ModelConfig) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta}}


# ---- the tables

_CLS = "cls.predictions"
BERT = Family(
    prefix="bert",
    modules=_modules(
        "bert",
        "bert.encoder.layer.{}",
        _BERT_LAYER,
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
    write=_write_positions,
)
ROBERTA = Family(
    prefix="roberta",
    modules=_modules(
        "roberta",
        "roberta.encoder.layer.{}",
        _BERT_LAYER,
        pooler="roberta.pooler.dense",
        mlm=("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", "lm_head"),
    ),
    classes={"RobertaForCausalLM": {"mlm"}, **_classes("Roberta")},
    causal="RobertaForCausalLM",
    aliases={"xlm-roberta": "XLMRoberta", "camembert": "Camembert"},
    defaults={"vocab_size": 50265, "pad_token_id": 1},
    read=_read_roberta,
    write=_write_positions,
)
ROBERTA_CLASSIFIER = replace(  # its head of sequences has a pooler of its own and does not read the encoder's
    ROBERTA,
    modules={**ROBERTA.modules, "encoder.pooler": "classifier.dense", "heads.classifier": "classifier.out_proj"},
    unread="roberta.pooler.",
    pooler_of={"classifier"},
)
ALBERT = Family(
    prefix="albert",
    modules=_modules(
        "albert",
        "albert.encoder.albert_layer_groups.{}.albert_layers.0",
        _ALBERT_LAYER,
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
    read=_read_albert,
    write=_write_albert,
)
DISTILBERT = Family(
    prefix="distilbert",
    modules=_modules(
        "distilbert",
        "distilbert.transformer.layer.{}",
        _DISTILBERT_LAYER,
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
    read=_read_distilbert,
    write=_write_distilbert,
)
_JINA = "JinaEmbeddingsV3"
JINA = Family(  # BERT and RoBERTa with rotary positions, in transformers from 5.4 on
    prefix="roberta",
    modules=_modules(
        "roberta",
        "roberta.layers.{}",
        _JINA_LAYER,
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
    read=_read_jina,
    write=_write_jina,
)
JINA_CLASSIFIER = replace(
    JINA,
    modules={**JINA.modules, "encoder.pooler": "classifier.dense", "heads.classifier": "classifier.out_proj"},
    unread="roberta.pooler.",
    pooler_of={"classifier"},
)
ROTARY = "jina_embeddings_v3"  # the model type of transformers for rotary BERT and RoBERTa
FAMILIES = {"bert": BERT, "roberta": ROBERTA, "albert": ALBERT, "distilbert": DISTILBERT, ROTARY: JINA}
_CLASSIFIERS = {
    "roberta": ROBERTA_CLASSIFIER,
    ROTARY: JINA_CLASSIFIER,
}


def family_of(name: str, classifier: bool) -> Family:
    """The table of a model type. `classifier`: whether there is a sequence classifier, which some name differently."""
    return _CLASSIFIERS.get(name, FAMILIES[name]) if classifier else FAMILIES[name]


def family_in(name: str, tensors: Collection[str], settings: Mapping[str, Any]) -> Family:
    """The table of a folder with these tensors and this config.json; `name` is the family of its encoder."""
    kind = ROTARY if settings.get("model_type") == ROTARY else name
    declared = {f"{prefix}ForSequenceClassification" for prefix in ("Roberta", _JINA)}
    classifier = not declared.isdisjoint(settings.get("architectures") or ())
    return family_of(kind, classifier or any(tensor.startswith("classifier.out_proj.") for tensor in tensors))
