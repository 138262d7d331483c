"""What a client may ask, field by field: from the values that were sent to checked ones, or one clear refusal."""
