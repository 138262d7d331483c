"""Building blocks of models in torch: builder, parallel layers, rotary tables, packed weights, sampling parameters.

The package itself imports nothing; take what you need from its modules. `rope_config`, `config_entries`, `shards` and
`decoder_shape` are free of torch.
"""
