"""A whole run: settings, preparation, phases, evaluation."""
