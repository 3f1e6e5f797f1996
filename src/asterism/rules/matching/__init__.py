"""Matches all rules of a key group in one operator.

``operator`` has the steps of a call. ``active_rules`` has the rules in force, ``selections`` which events each of them sees,
``suppression`` which matches are emitted, ``result_rows`` the rows of the outputs, ``state_pages`` the state.
"""
