"""Who holds the power in a solved world: measurements that are no part of the objective.

``diagnose`` measures what ``diagnostics`` of the parameters names; what it calls, in order::

    alone.py        what is left where robots never act: I_h, P and L of a solve with one action
    sweep.py        backward induction of other quantities, everybody acting as was solved
      guarded.py    capability that others, or robots, cannot take away: vulnerability, domination
      coalitions.py what humans attain together, and the share of each
    reserve.py      whether a goal that nobody listed would change what the robots do
    canonical.py    power where every state is a goal
    findings.py     all of it as data, tables and sentences
"""
