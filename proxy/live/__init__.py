"""Groups that are added, changed and removed while the proxy runs.

``group_changes`` and ``stored_group`` are pure; ``live_groups`` applies changes to the lanes;
``file_watch`` and ``store_watch`` read the settings file and the nameservers' store.
"""
