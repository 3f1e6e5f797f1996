"""The corpus of Flink's answers, and the engines that run it."""
