"""The same algorithms on Flower: a federation of machines."""
