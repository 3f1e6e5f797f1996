"""What a session and its Python workers need: settings, and what a worker imports."""
