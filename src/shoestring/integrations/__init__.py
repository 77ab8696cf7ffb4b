"""Use shoestring with other tools. The rest of the package imports nothing from here, and none of these tools is required.

stepping                        turns a blocking `fit()` with callbacks into a generator of steps
lightning, transformers, keras  a callback for each framework, on top of `stepping`
boosting                        trains XGBoost, LightGBM and CatBoost in steps, by continuing a model
sklearn                         `BudgetSearchCV`, and estimators that are trained in steps
optuna                          exports studies to Optuna, imports them, and has a sampler for Optuna
stopping                        stops the runs of another search method early
loggers                         shows a study in TensorBoard, MLflow or Weights & Biases
"""
