"""The suite never sees the home of the person who runs it."""

from __future__ import annotations

from pathlib import Path

import platformdirs


def test_home_and_every_corral_folder_are_temporary(home: Path) -> None:
    folders = [
        Path.home(),
        platformdirs.user_config_path("corral"),
        platformdirs.user_data_path("corral"),
        platformdirs.user_state_path("corral"),
        platformdirs.user_cache_path("corral"),
    ]
    assert [folder for folder in folders if not folder.is_relative_to(home)] == []
    assert not any(home.iterdir())
