"""The commands of ``asterism rules``."""
