"""Operators without Spark: the contract with the host, key groups, timers and user-defined operators.

Every feature is an operator: patterns, rules, row patterns, windows, joins, and what users write. An operator is a pure
function of its state, its arrivals and the time; the host stores the state, exchanges the events and calls it.

Read in this order:

* ``operator``: the contract, with the terms *input*, *arrival*, *result* and *output*
* ``key_group``: the steps of one call, the same for every operator: late events, waiting events, the watermark
* ``state``: what a key group stores
* ``stream_operator``: the class that users derive from (FLIP-92); ``multiple_input`` makes it an operator, ``runtime`` runs it

A *key group* is the unit of state: the keys with the same hash. Spark stores and calls each one separately. A *page* is a part of
its state with many keys. An event *waits* until the watermark has passed its time.
"""
