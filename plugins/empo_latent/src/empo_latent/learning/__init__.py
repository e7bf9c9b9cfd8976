"""Updates of the agent: latent rollouts, targets, losses, optimisers."""
