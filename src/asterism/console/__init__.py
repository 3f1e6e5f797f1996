"""The control plane: an HTTP endpoint and a page in the browser for the rules of a file, a folder or a database, apart from
queries. ``docs/console.md`` describes both.
"""
