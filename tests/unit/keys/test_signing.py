"""Signatures of real models: whatever changes the output changes the signature, nothing else does."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import safetensors.torch
import torch
import transformers
from onnx import TensorProto, helper
from tokenizers import Tokenizer, models, pre_tokenizers

from mmcache.keys.signing import describe, files
from mmcache.model.errors import InvalidInputError, UnversionedModelError
from mmcache.model.signature import Signature


def module(heads: int = 2, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.1), torch.nn.MultiheadAttention(8, heads)
    ).eval()


def _write(tensor: torch.Tensor) -> None:
    with torch.no_grad():
        tensor.reshape(-1)[0] += 1


CHANGES: dict[str, Callable[[Any], Any]] = {
    "a weight, in place": lambda m: _write(m[0].weight),
    "a weight, behind autograd's back": lambda m: _write(m[0].weight.data),
    "a weight, through numpy": lambda m: m[0].weight.detach().numpy().__setitem__((0, 0), 7.0),
    "a buffer": lambda m: _write(m[1].running_mean),
    "a buffer that is not saved": lambda m: m.register_buffer("scale", torch.ones(1), persistent=False),
    "the mode": lambda m: m.train(),
    "an attribute": lambda m: setattr(m[1], "eps", 0.1),
    "the dtype": lambda m: m.half(),
    "a layer more": lambda m: m.append(torch.nn.ReLU()),
    "a layer of another class": lambda m: m.__setitem__(2, torch.nn.AlphaDropout(0.1)),
    "a function": lambda m: setattr(m[0], "activation", torch.relu),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_a_module_changes_its_signature(change: str) -> None:
    model = module()
    before = describe(model)
    assert before == describe(module()) == describe(model)
    CHANGES[change](model)
    assert describe(model).digest != before.digest


def test_equal_weights_with_other_heads_are_another_model() -> None:
    assert describe(module(2)) != describe(module(4))
    assert describe(module()).dtype == "float32"
    assert describe(module().bfloat16()).dtype == "bfloat16"
    with torch.device("meta"), pytest.raises(UnversionedModelError, match="meta"):
        describe(torch.nn.Linear(2, 2))


def bert(**changes: Any) -> Any:
    torch.manual_seed(0)
    config = {
        "vocab_size": 20,
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 8,
    }
    return transformers.BertModel(transformers.BertConfig(**(config | changes))).eval()


def test_transformers_models_count_weights_configuration_and_commit(tmp_path: Path) -> None:
    model = bert()
    model.save_pretrained(tmp_path / "a")
    loaded = transformers.BertModel.from_pretrained(tmp_path / "a").eval()
    assert describe(loaded) == describe(model)  # wherever it came from
    assert describe(bert(hidden_act="relu")) != describe(model)
    assert describe(bert(layer_norm_eps=0.5)) != describe(model)
    model.config._commit_hash = "0123abcd"
    assert describe(model).model_version.startswith("0123abcd ")
    assert describe(model.forward).function.endswith("BertModel.forward")
    assert describe(model.forward).model_version == describe(model).model_version


def test_adapters_count() -> None:
    model = module()
    model[0].lora_A = torch.nn.Linear(8, 2, bias=False)
    first = describe(model)
    assert first.lora
    assert not describe(module()).lora
    _write(model[0].lora_A.weight)
    assert describe(model).lora != first.lora


def tokenizer(words: str = "ab") -> Any:
    inner = Tokenizer(models.WordLevel({"?": 0} | {word: n + 1 for n, word in enumerate(words)}, unk_token="?"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="?", pad_token="?")


def test_processors_and_tokenizers_count(monkeypatch: pytest.MonkeyPatch) -> None:
    # Processors also ask for the tokenizer of mistral-common where that is installed, even where it is for its data
    # only, without what its code needs (requirements/demo-assets.txt).
    kinds = transformers.processing_utils.MODALITY_TO_BASE_CLASS_MAPPING
    monkeypatch.setitem(kinds, "tokenizer", "PreTrainedTokenizerBase")
    words = tokenizer()
    before = describe(words)
    words(["a b"], truncation=True, max_length=2, padding=True)  # leaves traces in the backend
    assert describe(words) == before == describe(tokenizer())
    assert describe(tokenizer("abc")) != before
    words.padding_side = "left"
    assert describe(words) != before
    assert describe(tokenizer().backend_tokenizer).tokenizer
    assert describe(tokenizer("x").backend_tokenizer) != describe(tokenizer().backend_tokenizer)

    image = transformers.CLIPImageProcessorPil
    assert describe(image()) == describe(image())
    assert describe(image()) != describe(image(do_normalize=False))
    both = transformers.CLIPProcessor(image(), tokenizer())
    assert describe(both) != describe(transformers.CLIPProcessor(image(size={"shortest_edge": 99}), tokenizer()))
    assert describe(both) != describe(transformers.CLIPProcessor(image(), tokenizer("xyz")))
    pair = describe((bert(), both))
    assert pair.model_version == describe(bert()).model_version
    assert (pair.preprocess, pair.tokenizer) == (describe(both).preprocess, describe(both).tokenizer)
    assert pair.dtype == "float32"


def graph(path: Path, value: float = 1.0, name: str = "x", external: bool = False) -> Path:
    weights = onnx.numpy_helper.from_array(np.full(512, value, np.float32), "w")
    ends = [helper.make_tensor_value_info(end, TensorProto.FLOAT, ["n", 512]) for end in (name, "y")]
    made = helper.make_graph([helper.make_node("Mul", [name, "w"], ["y"])], "g", ends[:1], ends[1:], [weights])
    proto = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(proto, str(path), save_as_external_data=external, location="far.weights", size_threshold=0)
    return path


def test_onnx_files_count_content_schema_and_external_data(tmp_path: Path) -> None:
    one = describe(graph(tmp_path / "a.onnx"))
    assert one == describe(graph(tmp_path / "renamed.onnx"))
    assert one.schema_hash
    other = describe(graph(tmp_path / "b.onnx", 2.0))
    assert other != one
    assert other.schema_hash == one.schema_hash
    assert describe(graph(tmp_path / "c.onnx", name="z")).schema_hash != one.schema_hash
    far = graph(tmp_path / "far.onnx", external=True)
    before = describe(far)
    raw = bytearray((tmp_path / "far.weights").read_bytes())
    raw[5] ^= 1
    (tmp_path / "far.weights").write_bytes(raw)
    assert describe(far) != before
    (tmp_path / "far.weights").unlink()
    with pytest.raises(InvalidInputError, match=r"far\.weights"):
        describe(far)
    (tmp_path / "bad.onnx").write_bytes(b"\xff" * 99)
    for bad in ("bad.onnx", "absent.onnx", "absent.safetensors"):
        with pytest.raises(InvalidInputError):
            describe(tmp_path / bad)


def test_external_data_counts_without_the_onnx_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    far = graph(tmp_path / "far.onnx", external=True)
    monkeypatch.setitem(sys.modules, "onnx", None)
    before = describe(far)
    (tmp_path / "notes.txt").write_text("words")
    assert describe(far) == before
    raw = bytearray((tmp_path / "far.weights").read_bytes())
    raw[5] ^= 1
    (tmp_path / "far.weights").write_bytes(raw)
    assert describe(far) != before
    with pytest.raises(InvalidInputError):
        describe(tmp_path / "absent.onnx")


def test_sets_and_bytes_of_a_processor_count() -> None:
    def of(words: set[str], mark: bytes) -> Signature:
        made = transformers.CLIPImageProcessorPil()
        made.words, made.mark = words, mark
        return describe(made)

    assert of({"a", "b", "c"}, b"1") == of({"c", "b", "a"}, b"1")
    assert len({of({"a"}, b"1"), of({"b"}, b"1"), of({"a"}, b"2")}) == 3


def test_options_of_a_provider_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(graph(tmp_path / "a.onnx")), providers=["CPUExecutionProvider"])
    seen = set()
    for fp16 in ("0", "1"):
        options = {"TensorrtExecutionProvider": {"trt_fp16_enable": fp16}}
        monkeypatch.setattr(session, "get_provider_options", lambda options=options: options)
        seen.add(describe(session).device)
    assert len(seen) == 2


def test_an_onnx_session_counts_its_file_and_provider(tmp_path: Path) -> None:
    import onnxruntime

    path = graph(tmp_path / "a.onnx")
    found = describe(onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]))
    assert found.device == "CPU"
    assert describe(path).model_version in found.model_version
    with pytest.raises(UnversionedModelError, match="bytes"):
        describe(onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"]))


def test_folders_of_weights_count_every_file(tmp_path: Path) -> None:
    folder = tmp_path / "snapshots" / "abc123"
    folder.mkdir(parents=True)
    with pytest.raises(UnversionedModelError, match="no weights"):
        describe(folder)
    safetensors.torch.save_file({"w": torch.ones(3)}, str(folder / "model.safetensors"))
    (folder / "config.json").write_text("{}")
    before = describe(folder)
    assert before.model_version.startswith("abc123 ")
    (folder / "README.md").write_text("words")
    (folder / ".cache").mkdir()
    (folder / ".cache" / "x").write_text("x")
    assert describe(folder) == before
    (tmp_path / "elsewhere").mkdir()
    (folder / "part").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidInputError, match="link to a folder"):
        describe(folder)
    (folder / "part").unlink()
    (folder / "config.json").write_text('{"a": 1}')
    assert describe(folder) != before


def test_file_digests_are_remembered_by_identity_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "weights.bin"
    path.write_bytes(b"one")
    fresh = files.file_digest(path)
    path.write_bytes(b"two")  # same size, maybe within one tick of the clock
    assert files.file_digest(path) != fresh
    monkeypatch.setattr(files, "_SETTLED_SECONDS", -1.0)
    reads: list[Path] = []
    hashed = files._hashed
    monkeypatch.setattr(files, "_hashed", lambda p: reads.append(p) or hashed(p))  # type: ignore[func-returns-value]
    first = files.file_digest(path)
    assert files.file_digest(path) == first
    assert len(reads) == 1
    os.utime(path, ns=(1, 1))
    assert files.file_digest(path) == first
    assert len(reads) == 2


def test_callables_need_a_version_and_the_error_says_what_to_pass() -> None:
    def encode(text: str, scale: Any = 1) -> Any:
        return len(text) * scale

    with pytest.raises(UnversionedModelError, match=r"version='1\.0'") as caught:
        describe(encode)
    assert "encode" in str(caught.value)
    assert describe(encode, version="1").model_version == "1"
    assert describe(encode, version="1") != describe(encode, version="2")
    assert describe(encode, version="1") != describe(len, version="1")
    one, two = (lambda x: x), (
        lambda x: -x
    )  # fmt: skip
    assert describe(one, version="1") != describe(two, version="1")
    bound = [describe(functools.partial(encode, scale=scale), version="1") for scale in (1, 2, 2.0)]
    assert len({each.digest for each in (*bound, describe(encode, version="1"))}) == 4
    with pytest.raises(UnversionedModelError, match="partial"):
        describe(functools.partial(encode, scale=object()), version="1")
    with pytest.raises(UnversionedModelError):
        describe(functools.partial(encode, scale=1))
    hostile: list[Any] = [object(), 5, None, (), "", [module()]]
    for thing in hostile:
        with pytest.raises(UnversionedModelError):
            describe(thing)


def test_strings_signatures_and_fields() -> None:
    assert describe("clip 1.0") == Signature(model_version="clip 1.0")
    given = Signature(model_version="x", dtype="float16")
    assert describe(given) is not None
    assert describe(given, device="cuda") == Signature(model_version="x", dtype="float16", device="cuda")
    assert describe(module(), version="2.1").model_version.startswith("2.1 ")
    with pytest.raises(UnversionedModelError, match="fields"):
        describe("x", colour="red")
