"""What a federation tells of itself in status files, for people and programs that watch it."""
