"""Data: named sets and one's own, dealt to clients without leaks."""
