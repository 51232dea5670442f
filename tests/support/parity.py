"""Scores of our models and of those of transformers on the same batches, for the tests of parity.

Shapes: B sequences, L positions, C choices of an example, V vocabulary.
"""

import torch

from bertworks.model.heads import TOKEN_HEADS, Model

TOLERANCE = 1e-5
V, B, L, C = 97, 15, 17, 3  # positions enough that padding is left out of the packed form
BERT_KEYS = {
    "vocab_size": V,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 50,
    "initializer_range": 0.2,
}
ENDINGS = {  # their class: our head
    "ForMaskedLM": "mlm",
    "ForCausalLM": "mlm",
    "LMHeadModel": "mlm",
    "BertForPreTraining": "nsp",
    "NextSentencePrediction": "nsp",
    "AlbertForPreTraining": "sop",
    "ForSequenceClassification": "classifier",
    "ForMultipleChoice": "choice",
    "ForTokenClassification": "tagger",
    "ForQuestionAnswering": "span",
}


def shaken(model: torch.nn.Module, seed: int = 0) -> torch.nn.Module:
    """Biases and LayerNorms random too, so that a swapped name shows."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def batches(pad: int) -> list[dict[str, torch.Tensor]]:
    """No padding; padding on the right, with the pad's id as RoBERTa counts its positions by it; a hole within."""
    ids = torch.randint(5, V, (B, L), generator=torch.Generator().manual_seed(1))
    right = torch.arange(L) < torch.arange(B)[:, None] * 2 % 11 + 3
    holes = right & (torch.arange(L) != 3)
    masks = (torch.ones_like(right), right, holes)
    return [{"input_ids": torch.where(mask, ids, pad), "attention_mask": mask} for mask in masks]


def scores(model: Model, head: str | None, batch: dict[str, torch.Tensor], types: torch.Tensor) -> list[torch.Tensor]:
    """Hidden states, then what the head gives, at real tokens."""
    mask = batch["attention_mask"]
    out = model.encoder(batch["input_ids"], mask, types)
    given = [state[mask] for state in out.hidden_states]
    if "mlm" in model.heads:
        given.append(model.masked_lm_logits(out.last_hidden_state[mask]))
    if head is None and out.pooled is not None:
        given.append(out.pooled)
    elif head in TOKEN_HEADS:
        given.append(model.heads[head](out)[out.layout.rows(mask.flatten().nonzero().squeeze(1))])
    elif head not in (None, "mlm"):
        given.append(model.heads[head](out.pooled))
    return given


def their_scores(model, batch: dict[str, torch.Tensor], types: torch.Tensor) -> list[torch.Tensor]:
    mask, kind = batch["attention_mask"], type(model).__name__
    segments = {} if kind.startswith(("Distil", "Modern")) else {"token_type_ids": types}
    given = {**batch, "attention_mask": mask.long(), **segments}
    if kind.endswith("MultipleChoice"):
        given = {name: value.view(B // C, C, L) for name, value in given.items()}
    out = model(**given, output_hidden_states=True)
    states = [state.view(B, L, -1)[mask] for state in out.hidden_states]
    if kind.endswith("Model") and not kind.endswith("HeadModel"):
        return states + ([] if out.get("pooler_output") is None else [out.pooler_output])
    if kind.endswith("PreTraining"):
        return [*states, out.prediction_logits[mask], out.get("sop_logits", out.get("seq_relationship_logits"))]
    if kind.endswith("QuestionAnswering"):
        return [*states, torch.stack([out.start_logits, out.end_logits], -1)[mask]]
    if kind.endswith("MultipleChoice"):
        return [*states, out.logits.view(B, 1)]
    whole = kind.endswith(("SequenceClassification", "NextSentencePrediction"))
    return [*states, out.logits if whole else out.logits[mask]]


def head_of(cls: str) -> str | None:
    return next((head for ending, head in ENDINGS.items() if cls.endswith(ending)), None)


def same_scores(ours: Model, theirs) -> None:
    rows = ours.config.type_vocab_size
    types = torch.arange(L).expand(B, -1) % max(rows, 1)
    for batch in batches(ours.config.pad_token_id):
        found = scores(ours, head_of(type(theirs).__name__), batch, types)
        expected = their_scores(theirs, batch, types)
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert one.shape == other.shape
            torch.testing.assert_close(one, other, rtol=0, atol=TOLERANCE)
