"""What runs inside a federation on Flower: the server's part and a node's."""
