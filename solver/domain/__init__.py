"""The nouns: model, cluster, workload (together a problem), degrees, plan, estimate. Immutable, and valid from birth."""
