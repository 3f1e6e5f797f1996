"""Python runs this at the start of every process that has this folder on its path: the victim, and what Spark starts for it."""

import os

if "NEMESIS" in os.environ:
    import crash_points

    crash_points.install()
