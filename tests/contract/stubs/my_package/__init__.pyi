# The package of the hooks' examples, as far as they use it: each name gives what the hook must return.
