"""What starts a federation on Flower and watches over it."""
