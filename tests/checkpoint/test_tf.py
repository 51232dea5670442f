"""TensorFlow checkpoints: the oracle's to the bit, our own writer's, and damaged ones, which end in one message."""

import hashlib
import json
import random
import sys

import numpy as np
import pytest
import torch

from bertworks.checkpoint.convert.tensorflow import hf_name, read_original
from bertworks.checkpoint.convert.tensorflow_files import find_prefix, masked_crc32c, open_bundle
from bertworks.files import InputError
from support.shared_data import SHARED, needs_shared
from support.tf_writer import entry, field, header, table, write_bundle

RNG = np.random.default_rng(5)
ARRAYS = {
    "bert/embeddings/word_embeddings": RNG.random((11, 6), np.float32),
    "bert/pooler/dense/kernel": RNG.random((6, 6), np.float32),
    "bert/pooler/dense/kernel/adam_m": RNG.random((6, 6), np.float32),
    "bert/pooler/dense/bias": RNG.random(6, np.float32),
    "global_step": np.array(7, np.int64),
    "empty": np.zeros((0, 4), np.float32),
}


@pytest.fixture
def prefix(tmp_path):
    write_bundle(tmp_path / "model.ckpt-7", ARRAYS, shards=2)
    return tmp_path / "model.ckpt-7"


# ---- checksums


def test_checksum_is_the_one_of_the_standard():
    """RFC 3720, B.4, with the mask of LevelDB."""
    for data, crc in ((b"123456789", 0xE3069283), (b"", 0), (bytes(32), 0x8A9136AA), (b"\xff" * 32, 0x62A8AB43)):
        unmasked = masked_crc32c(data) - 0xA282EAD8 & 0xFFFFFFFF
        assert (unmasked << 15 | unmasked >> 17) & 0xFFFFFFFF == crc, data


def test_without_google_crc32c_the_extra_is_named(prefix, monkeypatch):
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    with pytest.raises(InputError, match=r"pip install 'bertworks\[tensorflow\]'"):
        open_bundle(prefix)


# ---- what is read


@needs_shared("oracle/model")
@pytest.mark.parametrize("name", ["tiny_l12_h24", "tiny_l1_h20_relu", "tiny_l2_h32_adam", "tiny_l3_h48_sharded"])
def test_every_variable_of_the_original_to_the_bit(name):
    folder = SHARED / "oracle" / "model" / name
    record = json.loads((folder / "variables.json").read_text())["variables"]
    bundle = open_bundle(find_prefix(folder))
    assert bundle.variables.keys() == {variable["name"] for variable in record}
    for variable in record:
        array = bundle.read(variable["name"]).numpy()
        assert list(array.shape) == variable["shape"] and array.dtype.name == variable["dtype"]
        assert hashlib.sha256(array.tobytes()).hexdigest() == variable["sha256"]
    slots = {name for name in bundle.variables if "adam" in name or name == "global_step"}
    assert read_original(folder).ignored.keys() == slots


def test_what_is_written_is_read(prefix):
    bundle = open_bundle(prefix)
    assert bundle.variables.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        found = bundle.read(name).numpy()
        np.testing.assert_array_equal(found, array)
        assert found.dtype == array.dtype


def test_bfloat16_is_read(tmp_path):
    values = np.array([1.5, -0.25, 96.0], np.float32)
    bits = (values.view(np.uint32) >> 16).astype(np.uint16)
    array = bits.view(np.float16)  # two bytes each; the type is said by hand
    rows = [(b"", header(1)), (b"x", entry(array, 0, 0, dtype=14))]
    (tmp_path / "m.index").write_bytes(table(rows))
    (tmp_path / "m.data-00000-of-00001").write_bytes(array.tobytes())
    found = open_bundle(tmp_path / "m").read("x")
    assert found.dtype == torch.bfloat16 and found.tolist() == values.tolist()


def test_a_prefix_a_file_or_a_folder_means_the_checkpoint(prefix):
    for path in (prefix, prefix.parent, f"{prefix}.index", f"{prefix}.data-00000-of-00002"):
        assert find_prefix(path) == prefix
    write_bundle(prefix.with_name("model.ckpt-9"), ARRAYS)
    for path in (prefix.parent, prefix.with_name("model.ckpt-8")):
        with pytest.raises(InputError, match=r"no (single )?checkpoint of .*; give one of model.ckpt-7, model.ckpt-9"):
            find_prefix(path)
    (prefix.parent / "sub").mkdir()
    with pytest.raises(InputError, match=r"no single checkpoint of .*; there is no .index file"):
        find_prefix(prefix.parent / "sub")
    prefix.with_name("old.ckpt").write_bytes(b"one file")
    with pytest.raises(InputError, match=r"old.ckpt: no checkpoint of TensorFlow's format V2"):
        find_prefix(prefix.with_name("old.ckpt"))


# ---- names


def test_names_that_few_checkpoints_have():
    known = {
        ("module/bert/embeddings/LayerNorm/gamma", "bert"): "bert.embeddings.LayerNorm.weight",
        ("output_weights", "albert"): "classifier.weight",
        (
            "bert/encoder/transformer/group_3/inner_group_0/LayerNorm_1/beta",
            "albert",
        ): "albert.encoder.albert_layer_groups.3.albert_layers.0.full_layer_layer_norm.bias",
    }
    for (name, family), expected in known.items():
        assert hf_name(name, family) == expected
    for name in ("bert/encoder/layer_x/output/dense/kernel", "bert/pooler/dense/alpha", "bert", "layer_1/kernel"):
        assert hf_name(name, "bert") is None


def with_config(prefix, name="bert_config.json", **settings):
    (prefix.parent / name).write_text(json.dumps({"hidden_act": "gelu", **settings}))
    return prefix


def test_slots_are_left_and_kernels_turned(tmp_path):
    arrays = {name: array for name, array in ARRAYS.items() if name != "empty"}
    write_bundle(tmp_path / "m", arrays)
    read = read_original(with_config(tmp_path / "m"))
    assert read.ignored == {
        "bert/pooler/dense/kernel/adam_m": "optimizer slot",
        "global_step": "count of training steps",
    }
    kernel = torch.from_numpy(arrays["bert/pooler/dense/kernel"])
    assert torch.equal(read.tensors["bert.pooler.dense.weight"], kernel.T)
    assert read.names["bert.pooler.dense.weight"] == "bert/pooler/dense/kernel"
    assert read.settings["hidden_act"] == "gelu_new" and read.settings["model_type"] == "bert"
    assert read_original(tmp_path / "m", hidden_act="gelu").settings["hidden_act"] == "gelu"


def test_a_variable_of_neither_program_is_named(prefix):
    with pytest.raises(InputError, match=r"1 variables that are no part of BERT .*: empty"):
        read_original(with_config(prefix))


def test_a_checkpoint_of_objects_is_refused(tmp_path):
    write_bundle(tmp_path / "m", {"_CHECKPOINTABLE_OBJECT_GRAPH": np.zeros(3, np.float32)})
    with pytest.raises(InputError, match=r"m: a checkpoint of objects \(Keras"):
        read_original(with_config(tmp_path / "m"))


def test_config_files(prefix):
    with pytest.raises(InputError, match=r"no config file; expected one of bert_config.json, albert_config.json"):
        read_original(prefix)
    with_config(prefix), with_config(prefix, "albert_config.json")
    with pytest.raises(InputError, match=r"bert_config.json and albert_config.json"):
        read_original(prefix)


# ---- what is refused


def files_of(prefix):
    return sorted(prefix.parent.glob(f"{prefix.name}.*"))


def outcome(prefix) -> dict | str:
    """What is read, or the message."""
    try:
        bundle = open_bundle(prefix)
        return {name: bundle.read(name).numpy().tobytes() for name in bundle.variables}
    except InputError as error:
        assert str(prefix.parent) in str(error)
        return str(error)


def test_every_flipped_bit_and_every_cut_is_noticed(prefix):
    """Or has no effect: padding, and the place of the block of metadata, which is not read."""
    whole = outcome(prefix)
    rng = random.Random(3)
    for file in files_of(prefix):
        good = file.read_bytes()
        damaged = [good[:end] for end in rng.sample(range(len(good)), min(30, len(good)))]
        for bit in rng.sample(range(8 * len(good)), 150):
            bad = bytearray(good)
            bad[bit // 8] ^= 1 << bit % 8
            damaged.append(bytes(bad))
        found = []
        for data in damaged:
            file.write_bytes(data)
            found.append(outcome(prefix))
            assert isinstance(found[-1], str) or found[-1] == whole
        assert sum(isinstance(one, str) for one in found) > 0.7 * len(found)
        file.write_bytes(good)
    assert outcome(prefix) == whole


BIAS = ARRAYS["bert/pooler/dense/bias"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([(b"", header(1, endianness=1))], "big-endian"),
        ([(b"", header(0))], "no data file"),
        ([(b"", header(3))], "says that there are 3 of them"),
        ([(b"", header(1)), (b"a", entry(BIAS, 0, 0, dtype=7))], "a has type 7 of types.proto"),
        ([(b"", header(1)), (b"a", entry(BIAS, 0, 0) + field(7, b""))], "a is stored in slices"),
    ],
)
def test_what_contradicts_itself_is_said(rows, message, tmp_path):
    (tmp_path / "m.index").write_bytes(table(rows))
    (tmp_path / "m.data-00000-of-00001").write_bytes(BIAS.tobytes())
    with pytest.raises(InputError, match=message) as caught:
        open_bundle(tmp_path / "m").read("a")
    assert str(tmp_path / "m.") in str(caught.value) or message.startswith("a has type")


def test_compressed_and_foreign_indices_are_refused(prefix):
    index = prefix.with_name(prefix.name + ".index")
    index.write_bytes(table([(b"", header(2))], compression=1))
    assert "compressed (snappy)" in outcome(prefix)
    good = table([(b"", header(2))])
    index.write_bytes(good[:-8] + good[-8:][::-1])  # as a big-endian machine would have it
    assert "not those of a table" in outcome(prefix)
