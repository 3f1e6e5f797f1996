"""The embedded host: runs operators in the process of the user, over Arrow tables, without Spark.

:mod:`asterism.embedded.keyed_stream` reads the events, :mod:`asterism.embedded.tables` runs operators over them. Operations have
the modules that :mod:`asterism.streams` asks for, beginning with :mod:`asterism.embedded.patterns`. See docs/decisions/0131.
"""

from asterism.loading import tell_of_compiling

tell_of_compiling()
