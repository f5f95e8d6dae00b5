"""What tests of the tool share."""

from pathlib import Path

import pytest

from tests.mutants.project import FILES, JUDGED, store_of


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An engine and its tests, recorded."""
    root = tmp_path_factory.mktemp("project")
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # for the time that it takes
        store_of(root).record(JUDGED, 1, lambda count: None)
    return root
