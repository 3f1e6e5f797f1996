"""Changes of rules where they are stored: ``rule_set`` says what each change means, without input and output; the others load
and save documents, folders and tables.
"""
