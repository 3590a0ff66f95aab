"""Takes the pictures in ``docs/pictures`` again."""
