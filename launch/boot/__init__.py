"""The folder that ``querypulse run`` puts first on ``PYTHONPATH``."""
