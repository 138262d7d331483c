"""`jackfield new`: writes the package of a plugin. It knows the kinds and its templates, and imports no plugin."""
