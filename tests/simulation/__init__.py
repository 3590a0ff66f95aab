"""The monitor in a simulated world that knows the truth; see `docs/internals/simulation.md`.

A seed determines a plan, and a plan determines everything: no clock, thread, socket or sleep.
"""
