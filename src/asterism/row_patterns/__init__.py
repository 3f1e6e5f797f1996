"""MATCH_RECOGNIZE, the row patterns of SQL:2016 (feature R010).

``clause`` has the syntax tree of a clause, ``reading`` reads it from text.
"""
