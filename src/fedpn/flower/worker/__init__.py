"""The warm half of a node: one process that holds PyTorch, data and models."""
