"""The names of the four families: one table of modules a family, used in both directions (names.py)."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from .names import Family


def _encoder(prefix: str, layer: str, modules: Mapping[str, str]) -> dict[str, str]:
    """An encoder's modules: embeddings, and in each layer those of `modules` and what no other software has."""
    inside = {**modules, "recurrent": "recurrent"}
    return {
        "encoder.embeddings.word": f"{prefix}.embeddings.word_embeddings",
        "encoder.embeddings.position": f"{prefix}.embeddings.position_embeddings",
        "encoder.embeddings.token_type": f"{prefix}.embeddings.token_type_embeddings",
        "encoder.embeddings.norm": f"{prefix}.embeddings.LayerNorm",
        "encoder.embeddings.projection": f"{prefix}.encoder.embedding_hidden_mapping_in",
        "encoder.final_norm": f"{prefix}.encoder.final_norm",
        **{f"encoder.layers.{{}}.{ours}": f"{layer}.{theirs}" for ours, theirs in inside.items()},
    }


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
_HEADS = {  # as most families call them
    "heads.nsp": "cls.seq_relationship",
    "heads.sop": "sop_classifier.classifier",
    "heads.classifier": "classifier",
    "heads.choice": "classifier",  # the class of the folder says which of the three it is
    "heads.tagger": "classifier",
    "heads.span": "qa_outputs",
    "top.weighting": "top.weighting",  # no other software has these two
    "top.bilstm.{}": "top.bilstm.{}",
}


def _parts(mlm: str, pooler: str) -> dict[str, str]:
    return {
        "mlm": mlm,
        "nsp": "cls.seq_relationship.",
        "sop": "sop_classifier.",
        "classifier": "classifier.",
        "choice": "classifier.",
        "tagger": "classifier.",
        "span": "qa_outputs.",
        "pooler": pooler,
        "top": "top.",
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


BERT = Family(
    prefix="bert",
    modules={
        **_encoder("bert", "bert.encoder.layer.{}", _BERT_LAYER),
        "encoder.pooler": "bert.pooler.dense",
        "heads.mlm.dense": "cls.predictions.transform.dense",
        "heads.mlm.norm": "cls.predictions.transform.LayerNorm",
        "heads.mlm.decoder": "cls.predictions.decoder",
        "heads.mlm": "cls.predictions",  # its bias
        **_HEADS,
    },
    parts=_parts("cls.predictions.", "bert.pooler."),
    classes={
        "BertForPreTraining": {"mlm", "nsp", "pooler"},
        "BertLMHeadModel": {"mlm"},
        "BertForNextSentencePrediction": {"nsp", "pooler"},
        **_classes("Bert"),
    },
    bare="BertModel",
    tied={
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    causal="BertLMHeadModel",
)
ROBERTA = Family(
    prefix="roberta",
    modules={
        **_encoder("roberta", "roberta.encoder.layer.{}", _BERT_LAYER),
        "encoder.pooler": "roberta.pooler.dense",
        "heads.mlm.dense": "lm_head.dense",
        "heads.mlm.norm": "lm_head.layer_norm",
        "heads.mlm.decoder": "lm_head.decoder",
        "heads.mlm": "lm_head",
        **_HEADS,
    },
    parts=_parts("lm_head.", "roberta.pooler."),
    classes={"RobertaForCausalLM": {"mlm"}, **_classes("Roberta")},
    bare="RobertaModel",
    tied={
        "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
    causal="RobertaForCausalLM",
)
ROBERTA_CLASSIFIER = replace(  # its head of sequences has a pooler of its own and does not read the encoder's
    ROBERTA,
    modules={**ROBERTA.modules, "encoder.pooler": "classifier.dense", "heads.classifier": "classifier.out_proj"},
    parts={**ROBERTA.parts, "pooler": "classifier.dense.", "classifier": "classifier.out_proj."},
    unread="roberta.pooler.",
)
ALBERT = Family(
    prefix="albert",
    modules={
        **_encoder("albert", "albert.encoder.albert_layer_groups.{}.albert_layers.0", _ALBERT_LAYER),
        "encoder.pooler": "albert.pooler",
        "heads.mlm.dense": "predictions.dense",
        "heads.mlm.norm": "predictions.LayerNorm",
        "heads.mlm.decoder": "predictions.decoder",
        "heads.mlm": "predictions",
        **_HEADS,
    },
    parts=_parts("predictions.", "albert.pooler."),
    classes={"AlbertForPreTraining": {"mlm", "sop", "pooler"}, **_classes("Albert")},
    bare="AlbertModel",
    tied={
        "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
        "predictions.decoder.bias": "predictions.bias",
    },
)
DISTILBERT = Family(
    prefix="distilbert",
    modules={
        **_encoder("distilbert", "distilbert.transformer.layer.{}", _DISTILBERT_LAYER),
        "encoder.pooler": "pre_classifier",  # of its heads there
        "heads.mlm.dense": "vocab_transform",
        "heads.mlm.norm": "vocab_layer_norm",
        "heads.mlm.decoder": "vocab_projector",
        "heads.mlm": "vocab_projector",
        **_HEADS,
    },
    parts=_parts("vocab_", "pre_classifier."),
    classes=_classes("DistilBert"),
    bare="DistilBertModel",
    tied={"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"},
)
FAMILIES = {"bert": BERT, "roberta": ROBERTA, "albert": ALBERT, "distilbert": DISTILBERT}


def family_of(name: str, classifier: bool) -> Family:
    """The names of a family's folder; `classifier`: whether it has RoBERTa's head of sequences."""
    return ROBERTA_CLASSIFIER if classifier and name == "roberta" else FAMILIES[name]


def family_in(name: str, tensors: Collection[str], settings: Mapping[str, Any]) -> Family:
    """The names of a folder with these tensors and this config.json."""
    promised = "RobertaForSequenceClassification" in (settings.get("architectures") or ())
    return family_of(name, promised or any(tensor.startswith("classifier.out_proj.") for tensor in tensors))
