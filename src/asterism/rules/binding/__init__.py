"""Rules for the columns of one stream.

``binding`` binds a rule. ``replication`` runs before the exchange: it evaluates the conditions on the current event
(``condition_index``) and sends a copy of the event to each key by which a rule groups that needs it. ``clauses`` binds rules with
a MATCH_RECOGNIZE clause.
"""
