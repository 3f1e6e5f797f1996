"""Streams and their results, as every host has them: what a user defines, its checks, and the operators that follow from it.

A *host* runs operators over the events of a user: :mod:`asterism.spark` over DataFrames of Spark, :mod:`asterism.embedded` over
Arrow tables in this process. :mod:`asterism.streams.hosts` chooses the host by the events. Begin with
:mod:`asterism.streams.keyed_stream`. See docs/decisions/0131.
"""
