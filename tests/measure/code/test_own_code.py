"""Whose a file's code is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import perf_diagnostics
from perf_diagnostics.measure.code.own_code import Kind, OwnCode

PACKAGE = Path(perf_diagnostics.__file__).parent


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("train.py", Kind.OWN),
        ("/projects/mine/model.py", Kind.OWN),
        ("/projects/.venv/lib/python3.11/site-packages/timm/models/vit.py", Kind.LIBRARY),
        ("/usr/lib/python3/dist-packages/numpy/core.py", Kind.LIBRARY),
        (json.__file__, Kind.LIBRARY),
        (torch.__file__, Kind.LIBRARY),
        ("/src/pytorch/torch/nn/modules/linear.py", Kind.LIBRARY),  # checked out, and installed in place
        ("/src/pytorch/torchx/train.py", Kind.OWN),
        ("<frozen importlib._bootstrap>", Kind.LIBRARY),
        ("<string>", Kind.LIBRARY),  # generated, as by dataclasses
        ("<stdin>", Kind.OWN),
        ("<ipython-input-3-f00>", Kind.OWN),
        ("/tmp/ipykernel_17/1234.py", Kind.OWN),
        (str(PACKAGE / "integrations" / "watching" / "patches.py"), Kind.OURS),
        (str(PACKAGE / "integrations" / "run_script.py"), Kind.STARTER),
    ],
)
def test_a_file_says_whose_its_code_is(file: str, kind: Kind) -> None:
    assert OwnCode(main="/projects/mine/train.py", frameworks=["/src/pytorch/torch"]).kind_of(file) is kind


def test_an_installed_program_is_the_users_own_in_its_run() -> None:
    own = OwnCode(main="/env/lib/python3.11/site-packages/trainer/cli/main.py", frameworks=[])
    assert own.kind_of("/env/lib/python3.11/site-packages/trainer/model.py") is Kind.OWN
    assert own.kind_of("/env/lib/python3.11/site-packages/trainers/model.py") is Kind.LIBRARY
    alone = OwnCode(main="/env/lib/python3.11/site-packages/train.py", frameworks=[])
    assert alone.kind_of("/env/lib/python3.11/site-packages/numpy/core.py") is Kind.LIBRARY
