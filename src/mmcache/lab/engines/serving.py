"""One vLLM engine as a process that is asked by lines of JSON: `python -m mmcache.lab.engines.serving '{"kind": …}'`.

Runs in the engines' environment. Started by `process.Engine`, which says what lines there are.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

MODEL_LENGTH = 1024
"""Tokens; the engine's own encoder cache then holds one picture of 576 rows."""


def arguments(kind: str, store: str, options: dict[str, Any]) -> dict[str, Any]:
    """What `LLM` is given beside the model. Kinds: `none`, `stock`, `example`, `lmcache`, `ours`."""

    def transfer(name: str, module: str | None, extra: dict[str, Any]) -> dict[str, Any]:
        config = {"ec_connector": name, "ec_role": "ec_both", "ec_connector_extra_config": extra}
        return {"ec_transfer_config": config | ({"ec_connector_module_path": module} if module else {})}

    match kind:
        case "none":
            return {"mm_processor_cache_gb": 0, "enable_prefix_caching": False}
        case "example":
            return transfer("ECExampleConnector", None, {"shared_storage_path": store})
        case "lmcache":
            return transfer("LMCacheConnector", "mmcache.lab.engines.peers", {})
        case "ours":
            scheduler = "mmcache.integrations.vllm.MMCacheScheduler"
            ours = transfer("MMCacheConnector", "mmcache.integrations.vllm", {"root": store, **options})
            return {"mm_processor_cache_gb": 0, "scheduler_cls": scheduler, **ours}
    return {}


class Serving:
    """The engine, with a counter on its vision tower."""

    def __init__(self, given: dict[str, Any]) -> None:
        from vllm import LLM, SamplingParams

        self._encoded = 0
        self._last: Any = None
        self._parameters = SamplingParams
        more = {} if given.get("blocks") is None else {"num_gpu_blocks_override": given["blocks"]}
        self._model = LLM(
            given["model"], dtype="bfloat16", enforce_eager=True, max_model_len=MODEL_LENGTH, seed=0,
            max_num_batched_tokens=MODEL_LENGTH, limit_mm_per_prompt={"image": 2}, **more, **given.get("flags", {}),
            **arguments(given["kind"], given["store"], given.get("options", {})),
        )  # fmt: skip
        self._model.apply_model(self._watch)

    def _watch(self, model: Any) -> None:
        def count(*_: Any) -> None:
            self._encoded += 1

        def keep(module: Any, inputs: Any, output: Any) -> None:
            self._last = output

        model.vision_tower.register_forward_hook(count)
        model.multi_modal_projector.register_forward_hook(keep)

    def ask(self, line: dict[str, Any]) -> dict[str, Any]:
        """One request, or those of `together` at once: latency, tokens, and the likeliest words of each place with
        their log-probabilities. Who is asked together shares the latency and the count of encodings."""
        lines = line.get("together") or [line]
        parameters = self._parameters(temperature=0, max_tokens=line.get("tokens", 4), logprobs=8, ignore_eos=True)
        prompts = [_prompt(each) for each in lines]
        before, began = self._encoded, time.perf_counter()
        outputs = self._model.generate(prompts, parameters, use_tqdm=False)
        ms = 1e3 * (time.perf_counter() - began)
        peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        shared = {"ms": ms, "encoded": self._encoded - before, "peak": peak}
        return {"answers": [shared | _answer(output) for output in outputs]}

    def flush(self, line: dict[str, Any]) -> dict[str, Any]:
        """Everything that was encoded is stored."""
        from vllm.distributed.ec_transfer import get_ec_transfer, has_ec_transfer

        if has_ec_transfer() and hasattr(get_ec_transfer(), "flush"):
            get_ec_transfer().flush()
        return {}

    def at_rest(self, line: dict[str, Any]) -> dict[str, Any]:
        """What INT4 makes of the output that was encoded last: largest error over its bound, and bytes."""
        import numpy as np

        from mmcache.codecs.int4 import INT4
        from mmcache.model.block import ArraySpec

        plain = self._last.reshape(-1, self._last.shape[-1]).float().numpy()
        codec, spec = INT4(), ArraySpec.of(plain)
        packed = codec.encode(plain, spec)
        error = np.abs(codec.decode(packed, spec) - plain)
        bound = codec.error_bound(plain, spec)
        return {
            "worst": float((error / np.maximum(bound, 1e-30)).max()),
            "relative": float(np.linalg.norm(error) / np.linalg.norm(plain)),
            "bytes": memoryview(packed).nbytes / (plain.size * 2),
        }

    def close(self) -> None:
        """Stop the engine."""
        self._model.llm_engine.engine_core.shutdown()


def _prompt(line: dict[str, Any]) -> dict[str, Any]:
    from PIL import Image

    prompt: dict[str, Any] = {"prompt": f"<s> {line['text']}"}
    if line.get("picture"):
        with Image.open(line["picture"]) as opened:
            prompt["multi_modal_data"] = {"image": opened.convert("RGB")}
    if line.get("uuid"):
        prompt["multi_modal_uuids"] = {"image": line["uuid"]}
    if line.get("salt"):
        prompt["cache_salt"] = line["salt"]
    return prompt


def _answer(output: Any) -> dict[str, Any]:
    made = output.outputs[0]
    likely = [{str(token): found.logprob for token, found in place.items()} for place in made.logprobs or []]
    return {"tokens": list(made.token_ids), "likely": likely, "prefix": output.num_cached_tokens or 0}


def main() -> None:
    """Answer lines until the input ends."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the engine prints
    given = json.loads(sys.argv[1])
    Path(given["store"]).mkdir(parents=True, exist_ok=True)
    serving = Serving(given)
    answers = {"ask": serving.ask, "flush": serving.flush, "at_rest": serving.at_rest}
    print(json.dumps({"ready": True}), file=replies, flush=True)
    for raw in sys.stdin:
        line = json.loads(raw)
        try:
            reply = answers[line["do"]](line)
        except Exception as error:  # noqa: BLE001 - whatever the engine says goes to the table
            reply = {"error": f"{type(error).__name__}: {error}"[:500]}
        print(json.dumps(reply), file=replies, flush=True)
    serving.close()


if __name__ == "__main__":
    main()
