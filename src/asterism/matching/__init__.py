"""The matching engine: binds a pattern to a schema, runs the kernel, and converts matches to rows."""
