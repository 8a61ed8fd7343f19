"""Bounded runs of a fuzzer over all that reads media from callers; `parts_target.py` runs for longer by hand."""

from __future__ import annotations

import base64
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.unit.server.media_world import pixels, saved

TARGET = Path(__file__).with_name("parts_target.py")
RUNS = 6_000
PNG = saved(pixels(0, 3, 2))
URL = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
PARTS = [
    {"type": "image_url", "image_url": {"url": URL, "detail": "low"}, "uuid": "a"},
    {"type": "image_url", "image_url": URL.replace("base64", "BASE64")},
    {"type": "input_image", "image_url": URL},
    {"type": "input_audio", "input_audio": {"data": "UklGRg==", "format": "wav"}},
    {"type": "video_url", "video_url": {"url": "data:video/jpeg;base64,QUFB,QUFB"}},
    {"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBERg", "filename": "a.pdf"}},
    {"type": "image_embeds", "image_embeds": {"a": "QUFB", "b": [1, 2.5]}, "uuid": "a"},
    {"type": "image_url", "image_url": None, "uuid": "a"},
]
FORM = (
    b'--xyz\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\nContent-Type: audio/wav\r\n\r\nRIFF\r\n'
    b'--xyz\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n--xyz--\r\n'
)
FIRST = [
    b"\0" + URL.encode(),
    b"\0data:audio/pcm;rate=1;x=y,%41%42",
    b"\1https://b\xc3\xbccher.example:443/a?b#c",
    b"\1http://[::ffff:1.2.3.4]/",
    b"\1https://0x7f.1/",
    b"\2" + FORM,
    b"\3" + PNG,
    b"\3" + saved(pixels(0, 3, 2), "BMP"),
    b"\3" + saved(pixels(0, 3, 2), "WEBP", lossless=True),
    *(b"\4" + json.dumps(part).encode() for part in PARTS),
]


def test_nothing_that_a_caller_sends_raises_what_it_should_not(tmp_path: Path) -> None:
    if importlib.util.find_spec("atheris") is None:
        pytest.skip("the fuzzer atheris is not installed: pip install atheris")
    for at, raw in enumerate(FIRST):
        (tmp_path / f"first-{at}").write_bytes(raw)
    command = [sys.executable, str(TARGET), str(tmp_path), f"-runs={RUNS}", "-seed=1", "-max_len=600", "-timeout=60"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert f"Done {RUNS} runs" in done.stderr
