"""Shoestring inside other tools. Nothing here is imported by the rest of the package, and none of these tools is required.

stepping        a blocking fit() with callbacks becomes a generator of steps; random generators are kept per trial
lightning, transformers, keras                a callback for each, on top of `stepping`
lightgbm, xgboost, catboost, sklearn          training in steps by continuing a model
sklearn_search  BudgetSearchCV, a search with scikit-learn's conventions
optuna          studies to and from Optuna, and a sampler
loggers         a study in TensorBoard, MLflow or Weights & Biases
"""
