"""Rules: patterns as data that change while the stream runs (FLIP-200), and the coordinator that manages them.

A rule has a different form at each stage of its life. In Flink's interface it is called a pattern processor:

| term | class | what it is |
|---|---|---|
| item | a JSON object, see ``sets.interfaces.processors_from`` | a rule, or a template of rules, as a source lists it |
| rule, pattern processor | ``definition.processor.PatternProcessor`` | id, version, pattern or clause, key and output, as data |
| refused processor | ``sets.interfaces.RefusedProcessor`` | an item that cannot be used, with the reason |
| slot | ``definition.processor.Slot`` | the id of a rule, and whether it is a shadow |
| set | ``sets.sets.ProcessorSet`` | all rules of a query from a moment on, with a number; published as a whole |
| entry | ``sets.sets.Entry`` | a rule in the state of a key group, with the event times for which it is in force |
| bound rule | ``binding.binding.BoundProcessor`` | a rule for the columns of one stream, ready to be matched |
| active rules | ``matching.active_rules.ActiveRules`` | the bound entries of a key group, shared by the key groups of a process |

Packages, in the order in which they use each other, which is also a good order to read them:

* ``definition``: the rule itself: what users write
* ``sets``: sets of rules, their storage, which of them are in force, their status and history
* ``binding``: rules for the columns of a stream; which events go to which rule
* ``matching``: the operator that matches all rules of a key group
* ``publishing``: the coordinator, which accepts what was discovered and publishes sets
* ``checking``: validation, and backtests
"""
