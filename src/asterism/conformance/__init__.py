"""The conformance corpus, with the results of Flink CEP, and the engines that run it."""
