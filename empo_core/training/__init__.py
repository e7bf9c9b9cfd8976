"""What learners share: schedules, regression, collection, checkpoints, profiling.

Everything here gets finished objects, never names or configs.
"""
