"""MATCH_RECOGNIZE, the row patterns of SQL:2016 (feature R010).

``clause`` has the syntax tree of a clause, ``reading`` reads it from text, ``resolution`` resolves the names and calls in its
expressions, and ``checking`` checks it against the columns of its input. ``automaton`` compiles its pattern, ``kernels`` searches
for matches, ``result_rows`` matches a clause in a table, and ``operator`` in a stream.
"""
