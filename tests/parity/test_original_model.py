"""Equality with the original implementation (google-research/bert on TensorFlow): outputs, losses, gradients, start."""

import json

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from bertworks.checkpoint.convert.tensorflow import read_original
from bertworks.checkpoint.folder import assemble
from bertworks.checkpoint.hf import config_from_hf
from bertworks.model.build import build_model
from bertworks.model.heads import Model
from bertworks.training.objectives import PretrainingObjective
from support.original import config_of, theirs
from support.shared_data import SHARED, needs_shared, shared

ORACLE = SHARED / "oracle" / "model"
CHECKPOINTS = ["tiny_l12_h24", "tiny_l1_h20_relu", "tiny_l2_h32_adam", "tiny_l3_h48_sharded"]
TOLERANCE = 2e-5


def ours(arrays, name: str) -> torch.Tensor:
    """An array of the original under our name; its kernels are [in, out]."""
    array = torch.from_numpy(arrays[theirs(name)])
    return array.T.contiguous() if theirs(name).endswith("/kernel") else array


def load(name: str) -> tuple[Model, dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """The model of a checkpoint's own files, which the arrays beside them agree with; inputs and outputs."""
    folder = shared("oracle/model") / name
    read = read_original(folder)
    model = assemble(config_from_hf(read.settings, str(folder)), read.settings, read.tensors, folder)
    assert model.config == config_of(json.loads((folder / "bert_config.json").read_text()))
    weights = np.load(folder / "weights.npz")
    assert {theirs(key) for key in model.state_dict()} == set(weights.files)
    for key, tensor in model.state_dict().items():  # by the table above, which is not the one they were read by
        assert torch.equal(tensor, ours(weights, key))
    arrays = ({k: torch.from_numpy(np.asarray(v)) for k, v in np.load(folder / f).items()} for f in FILES)
    inputs, outputs = arrays
    return model.eval(), inputs, outputs


OUTPUT = {"weight": "weights", "bias": "bias"}
FILES = ("inputs.npz", "outputs.npz")


def batch_of(inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A batch in our form. In one checkpoint's inputs a prediction stands in the hole of the mask, where our encoder
    computes nothing: its label becomes -100, and `masked_lm_loss` leaves it out on the other side too."""
    B, L = inputs["input_ids"].shape
    cells = inputs["masked_lm_positions"].long() + torch.arange(B)[:, None] * L
    used = (inputs["masked_lm_weights"] > 0) & inputs["input_mask"].bool().flatten()[cells]
    labels = torch.where(used, inputs["masked_lm_ids"].long(), -100)
    return {
        "input_ids": inputs["input_ids"].long(),
        "attention_mask": inputs["input_mask"].bool(),
        "token_type_ids": inputs["segment_ids"].long(),
        "masked_positions": cells.flatten(),
        "masked_labels": labels.flatten(),
        "pair_labels": inputs["next_sentence_labels"].long().flatten(),
    }


def masked_lm_loss(batch: dict[str, torch.Tensor], outputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """The original's loss, over the predictions in `batch`."""
    used = batch["masked_labels"] != -100
    return outputs["masked_lm_example_loss"][used].sum() / (used.sum() + 1e-5)


def furthest(found: torch.Tensor, expected: torch.Tensor) -> float:
    assert found.shape == expected.shape
    return float((found.detach() - expected).abs().max())


@needs_shared("oracle/model")
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_every_output_of_the_original(name):
    model, inputs, outputs = load(name)
    batch = batch_of(inputs)
    seen = batch["attention_mask"]
    out = model.encoder(batch["input_ids"], seen, batch["token_type_ids"])
    assert furthest(out.hidden_states[0][seen], outputs["embedding_output"][seen]) < TOLERANCE
    assert len(out.hidden_states) == 1 + len(outputs["all_encoder_layers"])
    for found, expected in zip(out.hidden_states[1:], outputs["all_encoder_layers"], strict=True):
        assert furthest(found[seen], expected[seen]) < TOLERANCE
        assert not found[~seen].any()  # ours does no work on padding
    assert furthest(out.last_hidden_state[seen], outputs["sequence_output"][seen]) < TOLERANCE
    assert furthest(out.pooled, outputs["pooled_output"]) < TOLERANCE

    real = seen.flatten()[batch["masked_positions"]]
    hidden = out.last_hidden_state.flatten(0, 1)[batch["masked_positions"]]
    log_probs = F.log_softmax(model.masked_lm_logits(hidden), -1)
    assert furthest(log_probs[real], outputs["masked_lm_log_probs"][real]) < TOLERANCE
    log_probs = F.log_softmax(model.heads["nsp"](out.pooled), -1)
    assert furthest(log_probs, outputs["next_sentence_log_probs"]) < TOLERANCE


@needs_shared("oracle/model")
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_losses_and_gradients_of_the_original(name):
    model, inputs, outputs = load(name)
    batch, objective = batch_of(inputs), PretrainingObjective()
    counts, terms = objective.counts(batch), objective(model, batch)
    mlm, nsp = terms["mlm"].loss / (counts["mlm"] + 1e-5), terms["nsp"].loss / counts["nsp"]
    assert furthest(mlm, masked_lm_loss(batch, outputs)) < TOLERANCE
    assert furthest(nsp, outputs["next_sentence_loss"]) < TOLERANCE
    if name != "tiny_l3_h48_sharded":  # the one with a prediction in the hole
        assert counts == {"mlm": int(inputs["masked_lm_weights"].sum()), "nsp": len(inputs["input_ids"])}
        assert furthest(mlm, outputs["masked_lm_loss"]) < TOLERANCE
        assert furthest(mlm + nsp, outputs["total_loss"]) < TOLERANCE
    if not (ORACLE / name / "gradients.npz").exists():
        return
    (mlm + nsp).backward()
    gradients = np.load(ORACLE / name / "gradients.npz")
    for key, parameter in model.named_parameters():
        expected = ours(gradients, key)
        if key.endswith("key.bias"):  # zero but for rounding: a shift of all scores of a query changes no weight
            assert parameter.grad.norm() < 1e-5 and expected.norm() < 1e-5
        else:
            assert (parameter.grad - expected).norm() / expected.norm() < 1e-5, key


@needs_shared("oracle/model")
def test_classification_head_of_the_original():
    for name in CHECKPOINTS:
        model, inputs, _ = load(name)
        batch, heads = batch_of(inputs), np.load(ORACLE / name / "heads.npz")
        pooled = model.encoder(batch["input_ids"], batch["attention_mask"], batch["token_type_ids"]).pooled
        classifier = build_model(model.config, ("classifier",), labels=len(heads["classifier/output_bias"]))
        head = classifier.heads["classifier"].eval()
        head.load_state_dict(
            {kind: torch.from_numpy(heads[f"classifier/output_{word}"]) for kind, word in OUTPUT.items()}
        )
        assert furthest(head(pooled), torch.from_numpy(heads["classifier/logits"])) < TOLERANCE


@needs_shared("oracle/model")
def test_a_fresh_model_has_the_statistics_of_the_original():
    record = json.loads((ORACLE / "initialisation.json").read_text())
    model = build_model(config_of(record["bert_config"]), seed=3)
    assert sum(p.numel() for p in model.parameters()) == record["total_parameters"]
    parameters = dict(model.named_parameters())
    expected = {variable["name"]: variable for variable in record["variables"]}
    assert {theirs(name) for name in parameters} == expected.keys()
    for name, parameter in parameters.items():
        variable = expected[theirs(name)]
        assert sorted(parameter.shape) == sorted(variable["shape"])
        if variable["std"] == 0:
            assert (parameter == variable["mean"]).all(), name
            continue
        std = 0.02 * 0.87963  # what truncation within two deviations leaves
        n = parameter.numel()
        assert abs(parameter.mean()) < 4.5 * std / n**0.5, name
        assert abs(parameter.std() - std) < 4.5 * std * (0.6 / n) ** 0.5, name  # (kurtosis 2.37 - 1) / 4 = 0.34 < 0.6
        assert parameter.abs().max() <= 0.04 + 1e-6, name
