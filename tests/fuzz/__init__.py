"""Random texts for everything that reads text from outside: each is taken or refused, and nothing else happens."""
