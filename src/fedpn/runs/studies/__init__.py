"""Many runs that answer one question: what is run, several at a time, and what came of it."""
