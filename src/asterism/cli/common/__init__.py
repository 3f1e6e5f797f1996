"""What the commands share: the terminal, input files, and a local Spark session."""
