"""The REST interface of rules, which the endpoint of a query and the console have in common."""
