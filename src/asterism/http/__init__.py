"""HTTP as the servers of this library use it: messages, tokens, routes, and the server itself."""
