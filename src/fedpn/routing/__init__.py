"""Routing: who answers, the client's model, the federation's, or nobody."""
