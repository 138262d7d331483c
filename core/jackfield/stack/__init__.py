"""Plugin stacks: discovery, manifests, resolution, loading, hash and fault policy."""
