"""Secret files of the workspace that a box sees only as placeholders."""
