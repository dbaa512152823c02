"""Mathematics and small tools that know nothing of federations."""
