import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def golden_folder():
    """Numbers recorded from the reference implementation; the tests skip where they are absent."""
    beside = Path(__file__).resolve().parents[3] / "shared/data/openvla_golden"
    folder = Path(os.environ.get("HEISD_GOLDEN_DIR", beside))
    if not (folder / "golden_openvla_tiny.npz").is_file():
        pytest.skip(f"golden numbers not found in {folder}; set HEISD_GOLDEN_DIR")
    return folder
