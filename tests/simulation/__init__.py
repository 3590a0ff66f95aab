"""The monitor in a simulated world that knows the truth; `docs/simulation.md` says how to use it.

Everything follows from a plan, and a plan from a seed: no clock, thread, socket or sleep.
"""
