"""Python runs this file at start where its folder is on the path: a setting is then ignored.

IGNORED_SETTING names it. It is accepted and checked as ever, and has its default from then on, here and
in every Python that this one starts. `test_serve_flags.py` asks so whether a test sees what a flag does.
"""

import os
import subprocess
from dataclasses import fields
from pathlib import Path
from typing import Any

from yaie.cli import options
from yaie.core import config
from yaie.server import settings

HERE = str(Path(__file__).parent)
NAME = os.environ["IGNORED_SETTING"]


def ignore(cls: Any) -> None:
    """Objects of this class have the setting's default."""
    checked = cls.__post_init__
    default = next(item.default for item in fields(cls) if item.name == NAME)

    def check_and_forget(self: Any) -> None:
        checked(self)
        object.__setattr__(self, NAME, default)

    cls.__post_init__ = check_and_forget


def pass_on(popen: Any) -> None:
    """Children find this folder on their path, too."""
    plain = popen.__init__

    def start(self: Any, *args: Any, env: Any = None, **options: Any) -> None:
        env = dict(os.environ if env is None else env)
        env["PYTHONPATH"] = os.pathsep.join([HERE, env.get("PYTHONPATH", "")])
        plain(self, *args, env=env | {"IGNORED_SETTING": NAME}, **options)

    popen.__init__ = start


if NAME == "model_too":  # `--model` beside the argument, which is no setting of its own
    options.one_model = lambda argument, flag: argument
elif NAME == "config_file":
    config._from_file = lambda path, cls: {}
elif NAME == "api_key_file":  # its keys join the others when it is read
    settings._keys_in = lambda path: ()
else:
    known = [config.EngineConfig, settings.ServerSettings]
    ignore(next(cls for cls in known if NAME in {item.name for item in fields(cls)}))
pass_on(subprocess.Popen)
