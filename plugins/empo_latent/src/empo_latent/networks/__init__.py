"""Networks of the latent model: batched ensembles, encoders, heads."""
