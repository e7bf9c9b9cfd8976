"""A file that a config names must be there, and is missed where it is named."""

from pathlib import Path

import pytest

from empo_core import Component, Config, ConfigFile
from empo_core.config.files import load_config
from empo_core.errors import ConfigError
from empo_core.plugins.registry import Offer, Provider, Registry


class Params(Config):
    file: ConfigFile


def registry() -> Registry:
    component = Component(
        kind="algorithm", name="reader", params=Params, target="nothing:Nothing", api=1, summary=""
    )
    provider = Provider("empo-reader", "0", "empo-reader", "")
    return Registry([Offer(provider, component)], [provider])


def load(folder: Path, file: str) -> Path:
    config = folder / "config.yaml"
    config.write_text(f"algorithm:\n  name: reader\n  params: {{file: {file}}}\n")
    params = load_config(config, registry=registry()).algorithm.params
    assert isinstance(params, Params)
    return params.file


def test_a_file_is_sought_from_the_folder_of_the_config(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "here.txt").touch()
    assert load(tmp_path, "data/here.txt") == tmp_path / "data" / "here.txt"


@pytest.mark.parametrize(("file", "message"), [("gone.txt", "exist"), (".", "a folder")])
def test_a_missing_file_is_an_error_where_it_is_named(
    file: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(
        ConfigError, match=r"config\.yaml:3:12: algorithm\.params\.file: .*" + message
    ):
        load(tmp_path, file)
