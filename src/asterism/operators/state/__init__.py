"""The state of a key group: a header, and pages of bytes under numbers.

Read ``page_numbers`` first, which has the layout, then ``state_store`` (records and their versions), ``group_header`` and
``pages``. ``waiting_events`` and ``broadcast_state`` have pages of their own; ``keyed_state`` has the states of user-defined
operators; ``state_definition`` describes all of it, so that it can be read without its operator.
"""
