"""A batch: what data and tasks make, what models and objectives read. A dict of tensors on one device.

Shapes: B sequences, L positions, M slots for predictions (masks: a fixed number for each B and L), C choices, K labels.
A *flat position* is one of the flattened batch (B * L,).

    key                shape        type           meaning
    input_ids          (B, L)       int64          token ids; padding holds the tokenizer's padding id
    attention_mask     (B, L)       bool           True = a real token, False = padding
    token_type_ids     (B, L)       int64          segment of each token: 0 or 1; padding holds 0
    masked_positions   (M,)         int64          flat positions to predict; unused slots hold 0
    masked_labels      (M,)         int64          the token ids before masking; unused slots hold IGNORED
    pair_labels        (B,)         int64          0 = B follows A, 1 = it does not (NSP) or they are swapped (SOP)
    labels             (B,)         int64          classes, or the right choice of (B / C,) examples of C sequences
                       (B,)         float32        values of a regression
                       (B, K)       float32        0 or 1 for each of K labels that do not exclude each other
                       (B, L)       int64          tags; tokens without a tag and padding hold IGNORED
                       (B, 2)       int64          first and last token of an answer
    teacher_scores     (B, K)       float32        a teacher's scores, in distillation on a task
    packed_positions   (T,)         int64          flat positions that are computed (model/layout.py); empty: no padding
    masked_slots       (m,)         int64          the used slots of `masked_labels`, then some that are not used
    output_positions   (R,)         int64          flat positions that the last layer computes: heads read most
    token_positions    (t,)         int64          flat positions of real tokens, in distillation
    tag_positions      (t,)         int64          flat positions with a tag, in tagging

Every batch has the first three keys. Pre-training adds `pair_labels`, and with masking the two `masked_` keys;
supervised tasks add `labels`. IGNORED in a field of int64 labels means that there is no label: no loss, no count.
`pair_labels` of single segments are IGNORED.

The last five keys can be read off the others. `Objective.prepare` adds those that an objective needs while the batch is
on the CPU; a GPU would have to be waited for. Language models get `masked_positions` and `masked_labels` there too: the
positions that predict a neighbour, and the neighbours' ids, as many as there are.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # data, below torch, reads IGNORED from here
    import torch

IGNORED = -100  # what torch's cross entropy ignores too

Batch = dict[str, "torch.Tensor"]


def to_device(batch: Batch, device: "torch.device") -> Batch:
    """The batch with every tensor on `device`. Copies to a GPU are asynchronous, from pinned memory."""
    if device.type == "cuda":  # from memory that is not pinned a copy would wait for all earlier work
        batch = {name: value.pin_memory() if value.is_cpu else value for name, value in batch.items()}
    return {name: value.to(device, non_blocking=True) for name, value in batch.items()}
