"""The thin clients of all languages as programs, with that of Python."""
