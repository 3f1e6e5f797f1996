"""The command ``asterism``."""
