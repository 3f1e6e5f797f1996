"""Sigma rules as pattern processors. pySigma (the extra ``sigma``) parses the rules and applies its processing pipelines; these
modules turn the parsed rules into SQL conditions, patterns and labels, without importing Spark. Begin with
:mod:`asterism.sigma.collection`.

See ``docs/from_sigma.md`` and docs/decisions/0138.

Source: the Sigma specification 2.1.0, https://github.com/SigmaHQ/sigma-specification
"""
