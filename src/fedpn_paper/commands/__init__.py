"""The commands `fedpn paper` and `fedpn experiment`."""
