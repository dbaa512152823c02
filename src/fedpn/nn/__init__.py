"""Networks: encoders, densities, posterior networks and their losses."""
