"""Takes the pictures in ``docs/pictures`` anew."""
