"""What may be wrong with a machine of a federation, looked at one thing after the other."""
