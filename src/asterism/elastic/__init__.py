"""EQL, the Event Query Language of Elastic: :mod:`parsing` reads a query, :mod:`conditions` makes SQL of its conditions, and
:mod:`sequences` makes a MATCH_RECOGNIZE clause of a sequence. None of them knows Spark.

See ``docs/from_eql.md`` and docs/decisions/0140.

Source: https://www.elastic.co/guide/en/elasticsearch/reference/current/eql-syntax.html
"""
