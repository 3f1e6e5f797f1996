"""``python -m asterism`` is the command ``asterism``."""

from asterism.cli.main import run

run()
