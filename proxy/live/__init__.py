"""Groups that are added, changed and removed while the proxy runs.

``group_changes`` and ``watched`` decide and are pure; ``live_groups`` does it to the lanes,
``file_watch`` reads the settings file.
"""
