"""The command ``asterism`` with the reference matcher: ``python -m tests.reference conformance --engine reference FILES``."""

from asterism.cli.main import main
from asterism.conformance.engines import register
from tests.reference.engine import run_reference

if __name__ == "__main__":
    register("reference", run_reference)
    main()
