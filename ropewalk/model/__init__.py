"""The model. Names of arrays end in their shapes; names, einsums, and shardings share one alphabet.

| letter | size                        | letter | size                                  |
|--------|-----------------------------|--------|---------------------------------------|
| B      | rows of a batch             | V      | vocab_size                            |
| T      | query positions             | F      | mlp_dim                               |
| S      | key and value positions     | R      | feature pairs of a head, head_dim / 2 |
| D      | embed_dim                   | L      | num_layers (stacked parameters)       |
| N      | num_heads (query heads)     | H      | head_dim                              |
| K      | num_kv_heads                | M      | members of a sweep                    |
| G      | N // K, queries per key     | Q      | answers of a document                 |
"""
