"""The package as its users import it."""

import subprocess
import sys

import pytest


def modules_after(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert not {"torch", "transformers", "huggingface_hub"} & modules_after("import yaie.models")


def test_importing_the_loader_does_not_load_transformers() -> None:
    loaded = modules_after(
        "from yaie.models import ModelLoader, Tokenizer, LoadedModel, ModelAdapter"
    )
    assert not {"transformers", "huggingface_hub"} & loaded


def test_an_unknown_name_is_an_attribute_error() -> None:
    import yaie.models

    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = yaie.models.nonsense
