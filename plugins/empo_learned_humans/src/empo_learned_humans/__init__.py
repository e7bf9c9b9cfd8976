"""Human priors that were learned in runs of ``rollout``, for empo."""
