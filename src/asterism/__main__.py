"""``python -m asterism`` is the command ``asterism``."""

from asterism.cli.main import main

main(prog_name="asterism")
