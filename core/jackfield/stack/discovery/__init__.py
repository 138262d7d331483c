"""What is installed: entry points, manifests and one-file plugins, read without an import, as a catalogue."""
