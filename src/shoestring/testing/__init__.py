"""For authors of plugins: contracts of policies, stores and runners as test suites, and made-up training curves."""
