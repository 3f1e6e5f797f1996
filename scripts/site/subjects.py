"""The headings of the texts of errors, by the folder of the tests that have them."""

SUBJECTS = {
    "patterns": "Patterns and their JSON form", "expressions": "Conditions and measures", "matching": "Matching",
    "row_patterns": "MATCH_RECOGNIZE", "rules": "Rules", "console": "The console",
    "operators": "User-defined operators", "windows": "Windows and triggers", "joins": "Joins",
    "spark": "Queries", "embedded": "Tables without Spark", "live": "Live engines", "savepoints": "Savepoints", "trace": "Traces",
    "sigma": "Sigma rules", "elastic": "EQL", "files": "Files", "http": "HTTP",
    "testing": "The test kit", "cli": "Commands", "sinks": "Sinks",
    "kafka": "Kafka", "servers": "Rules from servers", "discovery": "Discovery of rules",
}  # fmt: skip
