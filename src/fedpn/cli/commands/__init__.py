"""The commands, one family a file; each adds itself to the command line."""
