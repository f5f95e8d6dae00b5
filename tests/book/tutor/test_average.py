"""The mean of two trainings."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from book.tutor.average import average, main
from book.tutor.card import _command


def saved(folder: Path, weight: torch.Tensor, steps: int) -> Path:
    folder.mkdir()
    save_file({"w": weight}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"of": folder.name}))
    (folder / "training_log.json").write_text(json.dumps({"steps": steps}))
    return folder


def test_weights_are_averaged_and_both_logs_kept(tmp_path: Path) -> None:
    first = saved(tmp_path / "first", torch.tensor([1.0, 4.0], dtype=torch.bfloat16), 3)
    second = saved(tmp_path / "second", torch.tensor([2.0, -4.0], dtype=torch.bfloat16), 5)
    average(first, second, tmp_path / "mean")
    mean = load_file(tmp_path / "mean" / "model.safetensors")["w"]
    assert mean.dtype is torch.bfloat16
    assert mean.tolist() == [1.5, 0.0]
    log = json.loads((tmp_path / "mean" / "training_log.json").read_text())
    assert log == {"share": 0.5, "stages": [{"steps": 3}, {"steps": 5}]}
    assert json.loads((tmp_path / "mean" / "config.json").read_text()) == {"of": "second"}


def test_the_second_counts_its_share(tmp_path: Path) -> None:
    first = saved(tmp_path / "first", torch.tensor([1.0, 4.0]), 3)
    second = saved(tmp_path / "second", torch.tensor([2.0, -4.0]), 5)
    average(first, second, tmp_path / "mean", share=0.25)
    assert load_file(tmp_path / "mean" / "model.safetensors")["w"].tolist() == [1.25, 2.0]


def test_two_models_have_no_mean(tmp_path: Path) -> None:
    first = saved(tmp_path / "first", torch.zeros(2), 3)
    second = saved(tmp_path / "second", torch.zeros(3), 5)
    with pytest.raises(ValueError, match="only one model"):
        average(first, second, tmp_path / "mean")


LOG = {"seconds": 380.0, "windows_per_step": 32, "peak_learning_rate": 0.001, "seed": 3}


def test_the_card_says_how_a_training_was_regularised_and_what_its_mean_is_of() -> None:
    train = (
        "python -m book.tutor.train --init yaie/models/tutor/weights "
        "--seconds 380 --batch 32 --lr 0.001"
    )
    alone = _command(
        1.0, [LOG | {"dropout": 0.1, "first_word": 1.0, "systems": 0.35, "mean": True}]
    )
    assert alone == f"{train} --seed 3 --dropout 0.1 --systems 0.35 --mean --out stage1"
    assert _command(0.5, [LOG]).splitlines()[1].split()[3:] == [
        *(
            "yaie/models/tutor/weights",
            "stage1",
            "--share",
            "0.5",
            "--out",
            "yaie/models/tutor/weights",
        )
    ]
    assert "average stage1 stage2 --share 0.5" in _command(0.5, [LOG, LOG])


def test_trainings_side_by_side_count_the_same(tmp_path: Path) -> None:
    before = saved(tmp_path / "before", torch.tensor([1.0]), 3)
    runs = [saved(tmp_path / name, torch.tensor([w]), 5) for name, w in (("a", 2.0), ("b", 6.0))]
    main(["--out", str(tmp_path / "mean"), "--share", "0.75", *map(str, (before, *runs))])
    assert load_file(tmp_path / "mean" / "model.safetensors")["w"].tolist() == [3.25]
    log = json.loads((tmp_path / "mean" / "training_log.json").read_text())
    assert [stage["steps"] for stage in log["stages"]] == [3, 5, 5]


def test_the_card_says_that_trainings_went_on_side_by_side() -> None:
    lines = _command(1.0, [LOG, LOG | {"seed": 4}], side_by_side=True).splitlines()
    assert all("--init yaie/models/tutor/weights" in line for line in lines[:2])
    assert "average yaie/models/tutor/weights stage1 stage2 --share 1.0 --out" in lines[2]
