"""Runs what is to be measured.

``plan`` makes the trials of a ``sweep``, which has each one started by ``launch``, as a ``worker`` in a process of its
own. There ``measurement`` builds the workload, runs its ``steps``, and looks at it ``afterwards``; ``count`` has its
operations counted in another process. ``here`` measures in this process, ``confirm`` tries advice in pairs of trials.
"""
